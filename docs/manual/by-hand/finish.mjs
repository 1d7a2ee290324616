// Ends a connection by hand and says how far the bytes came.
//
//   node finish.mjs HOST PORT BYTES SECONDS [closed | read]
//
// Writes BYTES bytes to a server whose greeting it never reads, and finishes within SECONDS. With
// `read` it reads to the end instead, and says what that end was. Linux, Node 18 or later.
// Exit code 0: acked, closed where that was asked for, or read to a FIN. 1: less. 2: misuse.

import { once } from 'node:events';

// --- on the page ---
import { readFile } from 'node:fs/promises';
import net from 'node:net';
import os from 'node:os';
import { setTimeout } from 'node:timers/promises';

// The states, as /proc/net/tcp writes them.
const ESTABLISHED = 1, FIN_WAIT2 = 5, TIME_WAIT = 6, CLOSE_WAIT = 8, LAST_ACK = 9, CLOSING = 11;
const EARLY_FIN = [CLOSE_WAIT, LAST_ACK, CLOSING]; // the peer's FIN is here, ours is not acked

/** Both ends of a connection, to be found again in /proc. Ask while it is there. */
export function path(socket) {
  const hex = (port = 0) => port.toString(16).toUpperCase().padStart(4, '0');
  const word = (port) => `([\\dA-F]+):${hex(port)} `;
  return {
    ports: new RegExp(` ${word(socket.localPort)}${word(socket.remotePort)}(\\w+) (\\w+):`),
    names: `${name(socket.localAddress)} ${name(socket.remoteAddress)}`,
  };
}

function name(address = '') {
  return net.isIPv6(address) ? new URL(`http://[${address.split('%')[0]}]`).hostname : address;
}

function nameInProc(word) {
  const bytes = Buffer.from(word, 'hex');
  if (os.endianness() === 'LE') bytes.swap32();
  const groups = bytes.toString('hex').match(/.{4}/g).join(':');
  return name(bytes.length === 4 ? bytes.join('.') : groups);
}

/** The kernel's row of a connection: its state, and the bytes not acked (our FIN included). */
async function row(path) {
  const tcp6 = await readFile('/proc/net/tcp6', 'utf8').catch(() => ''); // there may be no IPv6
  for (const line of (await readFile('/proc/net/tcp', 'utf8') + tcp6).split('\n')) {
    const [, local, remote, state, queue] = line.match(path.ports) ?? [];
    if (local !== undefined && `${nameInProc(local)} ${nameInProc(remote)}` === path.names) {
      return { state: parseInt(state, 16), queue: parseInt(queue, 16) };
    }
  }
  return undefined; // reset, or ended in both directions and forgotten
}

/** How the peer ended, at 'end' or 'error', while our own direction is open (`allowHalfOpen`). */
export async function ended(path) {
  const seen = (await row(path)) ?? (await row(path)); // one may be missed while others change
  return seen === undefined ? 'RST' : EARLY_FIN.includes(seen.state) ? 'FIN' : 'open';
}

/**
 * Ends our direction and waits until the peer's kernel has it all; with `waitForFin` until the peer
 * has ended its own too. Then destroys the socket, which was made with `allowHalfOpen: true`.
 *
 * `unacked`: at most so many of the bytes written are not acked; undefined: it cannot be known.
 * `closed`: all are, and the peer's FIN came after ours was acked. `peer`: how it ended.
 */
export async function finish(socket, path, deadlineMs, waitForFin = false) {
  const until = performance.now() + deadlineMs;
  let over = socket.destroyed, limit = 1 << 20, wake = new AbortController();
  const wakeUp = () => { over = true; wake.abort(); };
  socket.on('end', wakeUp).on('error', wakeUp); // an 'end' may come of a reset too
  socket.on('data', (bytes) => { if ((limit -= bytes.length) <= 0) socket.pause(); });

  let peer = await ended(path); // asked first: later a missing row may also be an orderly end
  let earlyFin = peer !== 'open', unacked, acked, missing = 0;
  for (let wait = 0; ; wait = Math.min(2 * wait + 1, 100)) {
    const wasOver = over;
    const seen = await row(path);
    missing = seen === undefined ? missing + 1 : 0;
    if (seen !== undefined) {
      const finQueued = seen.state !== ESTABLISHED && seen.state !== CLOSE_WAIT;
      unacked = Math.max(seen.queue - (finQueued ? 1 : 0), 0) + socket.writableLength;
      acked = seen.state === FIN_WAIT2 || seen.state === TIME_WAIT; // our FIN too
      earlyFin ||= EARLY_FIN.includes(seen.state);
      if (EARLY_FIN.includes(seen.state) || seen.state === TIME_WAIT) peer = 'FIN';
    }
    if (!socket.writableEnded) socket.resume().end();
    const left = until - performance.now();
    if (over !== wasOver && left > 0) continue; // it ended while we looked
    if (left <= 0 || missing > 1 || (acked && (over || !waitForFin))) break;
    wake = new AbortController();
    await setTimeout(Math.min(wait, left), undefined, { signal: wake.signal }).catch(() => {});
  }
  socket.destroy();
  if (peer === 'open' && (over || missing > 1)) peer = socket.errored ? 'RST' : 'unknown';
  return { unacked, closed: acked && peer === 'FIN' && !earlyFin, peer };
}
// --- off the page ---

/** Writes until all is given to Node, or the connection fails or stalls. Byte n is n modulo 251. */
async function writeAll(socket, size, patienceMs) {
  const block = Buffer.alloc(251 * 256, Uint8Array.from({ length: 251 }, (_, i) => i));
  let given = 0;
  try {
    while (given < size) {
      const at = given % 251;
      const piece = block.subarray(at, at + size - given);
      given += piece.length;
      if (!socket.write(piece)) {
        await once(socket, 'drain', { signal: AbortSignal.timeout(patienceMs) });
      }
    }
  } catch (error) {
    console.error(`finish: writing ended after at most ${given} bytes: ${error.message}`);
  }
  return given;
}

/** Reads and counts to the end of the stream, or until the connection fails or stalls. */
async function readAll(socket, patienceMs) {
  let count = 0;
  socket.on('data', (bytes) => { count += bytes.length; });
  const over = once(socket, 'end', { signal: AbortSignal.timeout(patienceMs) });
  await (socket.destroyed ? undefined : over.catch(() => {}));
  return count;
}

async function main([host, port, bytes, seconds, level]) {
  if (seconds === undefined || ![undefined, 'closed', 'read'].includes(level)) {
    console.error('finish: HOST PORT BYTES SECONDS [closed | read]');
    return 2;
  }
  const socket = net.connect({ host, port: Number(port), allowHalfOpen: true });
  try {
    await once(socket, 'connect');
  } catch (error) {
    console.error(`finish: ${error.message}`);
    return 2;
  }
  socket.on('error', () => {}); // or it would end the program
  const way = path(socket);
  const deadlineMs = 1000 * Number(seconds), patienceMs = deadlineMs + 1000;
  const written = await writeAll(socket, Number(bytes), patienceMs);
  console.error(`finish: written ${written}`);

  if (level === 'read') {
    const count = await readAll(socket, patienceMs);
    const peer = await ended(way);
    console.log(`read: ${count} bytes, peer ${peer}`);
    return peer === 'FIN' ? 0 : 1;
  }
  const { unacked, closed, peer } = await finish(socket, way, deadlineMs, level === 'closed');
  const complete = unacked === 0 && written === Number(bytes);
  const reached = !complete ? 'written' : closed ? 'closed' : 'acked';
  const acked = unacked === undefined ? '?' : Math.max(written - unacked, 0);
  console.log(`${reached}: ${acked} of ${written} bytes acked, peer ${peer}`);
  return complete && (closed || level === undefined) ? 0 : 1;
}

process.exit(await main(process.argv.slice(2)));
