// Vercel's AI SDK: `generateObject` and `streamObject`, the `output` of `generateText` and `streamText`, and a tool that
// is demanded.
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, generateText, Output, streamObject, streamText, tool } from 'ai';
import { KEY, QUESTION, WEATHER } from './weather_form.mjs';

const compatible = (supportsStructuredOutputs) => (baseURL) =>
  createOpenAICompatible({ name: 'promptools', baseURL, supportsStructuredOutputs });
const openai = (baseURL) => createOpenAI({ baseURL, apiKey: KEY });
const anthropic = (baseURL) => createAnthropic({ baseURL, apiKey: KEY });
const toolOfAnthropic = { providerOptions: { anthropic: { structuredOutputMode: 'jsonTool' } } };
const formOfAnthropic = { providerOptions: { anthropic: { structuredOutputMode: 'outputFormat' } } };

const options = (connect, address, name, more) => ({
  model: connect(`${address}/v1`)(name),
  maxRetries: 0,
  prompt: QUESTION,
  onError() {},
  ...more,
});

const object = (connect, more) => async (address, name, stream) => {
  const asked = options(connect, address, name, { schema: WEATHER, ...more });
  if (!stream) return (await generateObject(asked)).object;
  const result = streamObject(asked);
  const [made] = await Promise.all([result.object, result.textStream.pipeTo(new WritableStream())]);
  return made;
};

const output = (connect, more) => async (address, name, stream) => {
  const asked = options(connect, address, name, { output: Output.object({ schema: WEATHER }), ...more });
  return (stream ? streamText(asked) : await generateText(asked)).output;
};

const demanded = (connect) => async (address, name, stream) => {
  const asked = options(connect, address, name, {
    tools: { weather: tool({ inputSchema: WEATHER }) },
    toolChoice: { type: 'tool', toolName: 'weather' },
  });
  const [call] = await (stream ? streamText(asked) : await generateText(asked)).toolCalls;
  return call.input;
};

export const WAYS = {
  '`generateObject`, openai-compatible, with a schema': object(compatible(true)),
  '`generateObject`, openai-compatible, without': object(compatible(false)),
  '`generateObject`, openai': object(openai),
  '`generateObject`, anthropic': object(anthropic, formOfAnthropic),
  '`generateText` with `output`, openai-compatible': output(compatible(true)),
  '`generateText` with `output`, openai': output(openai),
};
export const CALLS = {
  '`generateObject` by a tool, anthropic': object(anthropic, toolOfAnthropic),
  '`generateText` with `toolChoice`, openai-compatible': demanded(compatible(true)),
  '`generateText` with `toolChoice`, openai': demanded(openai),
};
