// As run_ways.py, for the programs of Node: `node run_ways.mjs PROGRAM ADDRESS=MODEL...`.

const [program, ...servers] = process.argv.slice(2);
const { WAYS } = await import(`./${program}.mjs`);

for (const [api, ask] of Object.entries(WAYS)) {
  for (const stream of [false, true]) {
    for (const server of servers) {
      const [address, model] = server.split('=');
      const name = `${model}-${program}-${api}-${stream ? 'streamed' : 'whole'}`;
      const row = { api, stream, server };
      try {
        row.answer = await ask(address, name, stream);
      } catch (error) {
        row.error = `${error.name}: ${error.message}`;
      }
      console.log(`\n${JSON.stringify(row)}`);
    }
  }
}
