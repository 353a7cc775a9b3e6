export const QUESTION = 'What is the weather in Paris right now?';
export const TURNS = 5;
export const KEY = 'none';
export const DESCRIPTION = 'Tell the current weather of a city.';
export const PARAMETERS = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
};
export const getWeather = ({ city }) => `${city}: clear sky, 18 degrees`;
