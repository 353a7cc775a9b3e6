// OpenAI's SDK for Node: `parse` and its helpers for streams.
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { KEY, QUESTION, WEATHER } from './weather_form.mjs';

const connect = (address) => new OpenAI({ baseURL: `${address}/v1`, apiKey: KEY, maxRetries: 0 });

async function completed(address, model, stream, form) {
  const { completions } = connect(address).chat;
  const request = { model, messages: [{ role: 'user', content: QUESTION }], ...form };
  const done = stream ? await completions.stream(request).finalChatCompletion() : await completions.parse(request);
  return done.choices[0].message;
}

async function responses(address, model, stream) {
  const api = connect(address).responses;
  const request = { model, input: QUESTION, text: { format: zodTextFormat(WEATHER, 'weather') } };
  return (stream ? await api.stream(request).finalResponse() : await api.parse(request)).output_parsed;
}

export const WAYS = {
  '`chat.completions.parse`': async (...asked) =>
    (await completed(...asked, { response_format: zodResponseFormat(WEATHER, 'weather') })).parsed,
  '`responses.parse`': responses,
};
export const CALLS = {
  '`zodFunction`, named': async (...asked) => {
    const form = {
      tools: [zodFunction({ name: 'weather', parameters: WEATHER })],
      tool_choice: { type: 'function', function: { name: 'weather' } },
    };
    return (await completed(...asked, form)).tool_calls[0].function.parsed_arguments;
  },
};
