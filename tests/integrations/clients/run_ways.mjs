// As run_ways.py, for the programs of Node: `node run_ways.mjs PROGRAM ADDRESS=MODEL... [CALLS ADDRESS=MODEL...]`.

const [program, ...words] = process.argv.slice(2);
const module = await import(`./${program}.mjs`);

const plan = { WAYS: [] };
let kind = 'WAYS';
for (const word of words) {
  if (word.includes('=')) {
    plan[kind].push(word);
  } else {
    kind = word;
    plan[kind] = [];
  }
}

for (const [kind, servers] of Object.entries(plan)) {
  for (const [api, ask] of Object.entries(module[kind] ?? {})) {
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
}
