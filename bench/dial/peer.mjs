// What Node's net.connect takes: bench/dial.sh runs it.
//
//   node peer.mjs HOST PORT [COUNT]
//
// A line of JSON for each dial; each after the first waits for a line on stdin. 20 s for a dial.
import net from "node:net";
import readline from "node:readline";

const TIMEOUT = 20_000;

function dial(host, port) {
  return new Promise((resolve) => {
    const began = performance.now();
    const socket = net.connect({ host, port });
    const done = (how) => {
      clearTimeout(timer);
      resolve({ ms: performance.now() - began, ...how });
      socket.destroy();
    };
    const timer = setTimeout(() => done({ error: "timed out" }), TIMEOUT);
    socket.once("connect", () => done({ peer: socket.remoteAddress }));
    socket.on("error", (error) => {
      const all = error.errors ?? [error];
      done({ error: all.map((each) => each.message).join("; ") });
    });
  });
}

const [host, port, count] = process.argv.slice(2);
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
for (let number = 0; number < Number(count ?? 1); number += 1) {
  if (number > 0) await lines.next();
  const told = await dial(host, Number(port));
  process.stdout.write(`${JSON.stringify(told)}\n`);
}
process.exit(0);
