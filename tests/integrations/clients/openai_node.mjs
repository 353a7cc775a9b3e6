// OpenAI's SDK for Node: its runner of tools, and a loop over the Responses API.
import OpenAI from 'openai';
import { DESCRIPTION, getWeather, KEY, PARAMETERS, QUESTION, TURNS } from './weather_tool.mjs';

const connect = (address) => new OpenAI({ baseURL: `${address}/v1`, apiKey: KEY, maxRetries: 0 });

async function chat(address, model, stream) {
  const runner = connect(address).chat.completions.runTools({
    model,
    stream,
    messages: [{ role: 'user', content: QUESTION }],
    tools: [
      {
        type: 'function',
        function: {
          name: 'get_weather',
          description: DESCRIPTION,
          parameters: PARAMETERS,
          parse: JSON.parse,
          function: getWeather,
        },
      },
    ],
  });
  return runner.finalContent();
}

async function responses(address, model, stream) {
  const tools = [{ type: 'function', name: 'get_weather', description: DESCRIPTION, parameters: PARAMETERS, strict: true }];
  const input = [{ role: 'user', content: QUESTION }];
  for (let turn = 0; turn < TURNS; turn += 1) {
    const request = { model, input, tools, store: false, include: ['reasoning.encrypted_content'] };
    const api = connect(address).responses;
    const response = stream ? await api.stream(request).finalResponse() : await api.create(request);
    const calls = response.output.filter((item) => item.type === 'function_call');
    if (!calls.length) return response.output_text;
    input.push(...response.output);
    for (const call of calls) {
      const output = getWeather(JSON.parse(call.arguments));
      input.push({ type: 'function_call_output', call_id: call.call_id, output });
    }
  }
  return '';
}

export const WAYS = { chat, responses };
