import { z } from 'zod';

export const QUESTION = 'What is the weather in Paris right now? Answer in JSON.';
export const KEY = 'none';
export const WEATHER = z.object({ city: z.string(), degrees: z.int() });
