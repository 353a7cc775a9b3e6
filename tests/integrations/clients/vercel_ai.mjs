// Vercel's AI SDK over its providers; @ai-sdk/openai speaks the Responses API unless it is told otherwise.
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, isStepCount, streamText, tool } from 'ai';
import { z } from 'zod';
import { DESCRIPTION, getWeather, KEY, QUESTION, TURNS } from './weather_tool.mjs';

const way = (connect) => async (address, name, stream) => {
  const options = {
    model: connect(`${address}/v1`)(name),
    tools: {
      get_weather: tool({
        description: DESCRIPTION,
        inputSchema: z.object({ city: z.string() }),
        execute: async (input) => getWeather(input),
      }),
    },
    stopWhen: isStepCount(TURNS),
    maxRetries: 0,
    prompt: QUESTION,
  };
  if (!stream) return (await generateText(options)).text;
  let text = '';
  for await (const part of streamText({ ...options, onError() {} }).fullStream) {
    if (part.type === 'error') throw part.error;
    if (part.type === 'text-delta') text += part.text;
  }
  return text;
};

export const WAYS = {
  responses: way((baseURL) => createOpenAI({ baseURL, apiKey: KEY })),
  chat: way((baseURL) => createOpenAICompatible({ name: 'promptools', baseURL })),
  messages: way((baseURL) => createAnthropic({ baseURL, apiKey: KEY })),
};
