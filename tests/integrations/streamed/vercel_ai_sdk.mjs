import { streamText } from 'ai';

for await (const part of streamText(options).textStream) process.stdout.write(part);
