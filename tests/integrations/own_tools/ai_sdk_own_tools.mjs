// Vercel's AI SDK with the tools that OpenAI and Anthropic define and the app runs.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, isStepCount, streamText } from 'ai';
import { KEY, TURNS } from './weather_tool.mjs';

const PATCHES = ['quince', 'Note the fruit of fruit.txt in notes.md.'];
const LOCAL = ['medlar', 'Which fruit does a local shell find in fruit.txt?'];
const EDITS = ['rowan', 'Note the fruit of fruit.txt in notes.md and in your memory.'];

const run = (command, cwd) => execFileSync('bash', ['-c', command], { cwd, encoding: 'utf8' });

const shellAndPatches = (baseURL, folder) => {
  const openai = createOpenAI({ baseURL, apiKey: KEY });
  return [
    openai,
    {
      shell: openai.tools.shell({
        execute: async ({ action }) => ({
          output: action.commands.map((command) => ({
            stdout: run(command, folder),
            stderr: '',
            outcome: { type: 'exit', exitCode: 0 },
          })),
        }),
      }),
      apply_patch: openai.tools.applyPatch({
        execute: async ({ operation }) => {
          writeFileSync(join(folder, operation.path), operation.diff.replaceAll(/^\+/gm, ''));
          return { status: 'completed', output: `Created ${operation.path}` };
        },
      }),
    },
  ];
};

const localShell = (baseURL, folder) => {
  const openai = createOpenAI({ baseURL, apiKey: KEY });
  const execute = async ({ action: { command } }) => ({
    output: execFileSync(command[0], command.slice(1), { cwd: folder, encoding: 'utf8' }),
  });
  return [openai, { local_shell: openai.tools.localShell({ execute }) }];
};

const bashEditorAndMemory = (baseURL, folder) => {
  const anthropic = createAnthropic({ baseURL, apiKey: KEY });
  return [
    anthropic,
    {
      bash: anthropic.tools.bash_20250124({ execute: async ({ command }) => run(command, folder) }),
      str_replace_based_edit_tool: anthropic.tools.textEditor_20250728({
        execute: async ({ path, file_text }) => {
          writeFileSync(join(folder, path), file_text);
          return `Wrote ${path}`;
        },
      }),
      memory: anthropic.tools.memory_20250818({
        execute: async ({ path, file_text }) => `File created successfully at: ${path}, ${file_text}`,
      }),
    },
  ];
};

const way = ([fruit, prompt], connect) => async (address, name, stream) => {
  const folder = mkdtempSync(join(tmpdir(), 'fruit-'));
  try {
    writeFileSync(join(folder, 'fruit.txt'), `${fruit}\n`);
    const [provider, tools] = connect(`${address}/v1`, folder);
    const options = { model: provider(name), tools, stopWhen: isStepCount(TURNS), maxRetries: 0, prompt };
    let text = '';
    if (stream) {
      for await (const part of streamText({ ...options, onError() {} }).fullStream) {
        if (part.type === 'error') throw part.error;
        if (part.type === 'text-delta') text += part.text;
      }
    } else {
      text = (await generateText(options)).text;
    }
    const notes = join(folder, 'notes.md');
    return [text, existsSync(notes) ? readFileSync(notes, 'utf8') : null];
  } finally {
    rmSync(folder, { recursive: true });
  }
};

export const WAYS = {
  shell: way(PATCHES, shellAndPatches),
  local: way(LOCAL, localShell),
  messages: way(EDITS, bashEditorAndMemory),
};
