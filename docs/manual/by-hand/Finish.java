// Ends a connection by hand and says how far the bytes came.
//
//   javac Finish.java
//   java Finish HOST PORT BYTES SECONDS [closed | read]
//
// Writes BYTES bytes to a server whose greeting it never reads, and finishes within SECONDS. With
// `read` it reads to the end instead, and says what that end was. Linux, Java 17 or later.
// Exit code 0: acked, closed where that was asked for, or read to a FIN. 1: less. 2: misuse.

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;

public final class Finish {
    // --- on the page ---
    // The states, as /proc/net/tcp writes them.
    static final int ESTABLISHED = 1, FIN_WAIT2 = 5, TIME_WAIT = 6, CLOSE_WAIT = 8;
    static final Set<Integer> EARLY_FIN = Set.of(8, 9, 11); // the peer's is here, ours not acked

    /** The kernel's row of a connection: its state, and the bytes not acked (our FIN included). */
    record Row(int state, long queue) {
        /** Null: reset, or ended in both directions and forgotten. */
        static Row of(Socket socket) throws IOException {
            String ends = ends(socket, false), mapped = ends(socket, true);
            var lines = Files.readAllLines(Path.of("/proc/net/tcp"));
            Path tcp6 = Path.of("/proc/net/tcp6"); // there may be no IPv6
            if (Files.exists(tcp6)) lines.addAll(Files.readAllLines(tcp6));
            for (String line : lines) {
                if (!line.contains(ends) && !line.contains(mapped)) continue;
                String[] words = line.trim().split("\\s+");
                String queue = words[4].substring(0, 8);
                return new Row(Integer.parseInt(words[3], 16), Long.parseLong(queue, 16));
            }
            return null;
        }

        /** Both ends as they stand there. Java's sockets are of IPv6: IPv4 may be mapped into it. */
        static String ends(Socket socket, boolean mapped) {
            String here = end((InetSocketAddress) socket.getLocalSocketAddress(), mapped);
            return here + end((InetSocketAddress) socket.getRemoteSocketAddress(), mapped);
        }

        static String end(InetSocketAddress end, boolean mapped) {
            byte[] address = end.getAddress().getAddress(), in6 = new byte[16];
            in6[10] = in6[11] = -1;
            if (mapped && address.length == 4) System.arraycopy(address, 0, in6, 12, 4);
            var words = ByteBuffer.wrap(mapped ? in6 : address).order(ByteOrder.nativeOrder());
            var hex = HexFormat.of().withUpperCase();
            var text = new StringBuilder(" ");
            while (words.hasRemaining()) text.append(hex.toHexDigits(words.getInt()));
            return text.append(":").append(hex.toHexDigits((short) end.getPort())).toString();
        }
    }

    /** How the peer ended, once read has returned -1, while our own direction is open. */
    static String ended(Socket socket) throws IOException {
        Row row = Row.of(socket);
        if (row == null) row = Row.of(socket); // one may be missed while others change
        return row == null ? "RST" : EARLY_FIN.contains(row.state) ? "FIN" : "open";
    }

    /**
     * How far the bytes came. `unacked`: at most so many of those written are not acked; -1: it
     * cannot be known. `closed`: all are, and the peer's FIN came after ours was acked.
     */
    record Finished(long unacked, boolean closed, String peer) {}

    /**
     * Ends our direction and waits until the peer's kernel has it all; with `waitForFin` until the
     * peer has ended its own too. The caller closes the socket afterwards, never before.
     */
    static Finished finish(Socket socket, long deadlineMillis, boolean waitForFin)
            throws IOException, InterruptedException {
        long until = System.nanoTime() + deadlineMillis * 1_000_000, unacked = -1;
        String peer = ended(socket); // asked first: later a missing row may also be an orderly end
        boolean earlyFin = !peer.equals("open"), over = false, failed = false, acked = false;
        byte[] block = new byte[65536];
        int limit = 1 << 20, missing = 0;
        for (int wait = 0; ; wait = Math.min(2 * wait + 1, 100)) {
            Row row = Row.of(socket);
            missing = row == null ? missing + 1 : 0;
            if (row != null) {
                boolean finQueued = row.state != ESTABLISHED && row.state != CLOSE_WAIT;
                unacked = Math.max(row.queue - (finQueued ? 1 : 0), 0);
                acked = row.state == FIN_WAIT2 || row.state == TIME_WAIT; // our FIN too
                earlyFin |= EARLY_FIN.contains(row.state);
                if (EARLY_FIN.contains(row.state) || row.state == TIME_WAIT) peer = "FIN";
            }
            if (wait == 0) socket.shutdownOutput(); // tells of no reset that came before
            long left = (until - System.nanoTime()) / 1_000_000;
            if (left <= 0 || missing > 1 || acked && (over || !waitForFin)) break;
            int pause = (int) Math.max(Math.min(wait, left), 1); // 0 would be for ever
            try {
                if (over || limit == 0) {
                    Thread.sleep(pause);
                } else {
                    socket.setSoTimeout(pause);
                    InputStream input = socket.getInputStream();
                    int count = input.read(block, 0, Math.min(limit, block.length));
                    limit -= Math.max(count, 0);
                    over = count < 0; // also where a failed write was told of the reset
                }
            } catch (SocketTimeoutException nothing) {
                // Look again.
            } catch (IOException failure) {
                over = failed = true;
            }
        }
        if (peer.equals("open") && (over || missing > 1)) peer = failed ? "RST" : "unknown";
        return new Finished(unacked, acked && peer.equals("FIN") && !earlyFin, peer);
    }
    // --- off the page ---

    /** What was written whole: where a write fails, some of its bytes may be written too. */
    static long writeAll(OutputStream output, long size) {
        byte[] block = new byte[251 * 256]; // byte number n of the stream is n modulo 251
        for (int i = 0; i < block.length; i++) block[i] = (byte) (i % 251);
        long written = 0;
        try {
            while (written < size) {
                int at = (int) (written % 251);
                int count = (int) Math.min(block.length - at, size - written);
                output.write(block, at, count);
                written += count;
            }
        } catch (IOException failure) {
            say("writing ended after " + written + " bytes: " + failure.getMessage());
        }
        return written;
    }

    static long readAll(InputStream input) {
        byte[] block = new byte[65536];
        long read = 0;
        try {
            for (int count; (count = input.read(block)) >= 0; ) read += count;
        } catch (IOException failure) {
            say("reading ended after " + read + " bytes: " + failure.getMessage());
        }
        return read;
    }

    static int run(String[] words) throws IOException, InterruptedException {
        String level = words.length > 4 ? words[4] : "acked";
        if (words.length < 4 || !List.of("acked", "closed", "read").contains(level)) {
            say("HOST PORT BYTES SECONDS [closed | read]");
            return 2;
        }
        long size = Long.parseLong(words[2]);
        int patience = (int) (Double.parseDouble(words[3]) * 1000);
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress(words[0], Integer.parseInt(words[1])), patience);
            // A write has no time-out; it ends when its socket is closed.
            var watch = new Thread(() -> closeLater(socket, 4L * patience + 4000));
            watch.setDaemon(true);
            watch.start();

            long written = writeAll(socket.getOutputStream(), size);
            say("written " + written);
            if (level.equals("read")) {
                socket.setSoTimeout(patience);
                long read = readAll(socket.getInputStream());
                String peer = ended(socket);
                System.out.println("read: " + read + " bytes, peer " + peer);
                return peer.equals("FIN") ? 0 : 1;
            }
            Finished f = finish(socket, patience, level.equals("closed"));
            boolean complete = f.unacked == 0 && written == size;
            String reached = !complete ? "written" : f.closed ? "closed" : "acked";
            String acked = f.unacked < 0 ? "?" : "" + Math.max(written - f.unacked, 0);
            String share = acked + " of " + written + " bytes acked";
            System.out.println(reached + ": " + share + ", peer " + f.peer);
            return complete && (f.closed || !level.equals("closed")) ? 0 : 1;
        }
    }

    static void closeLater(Socket socket, long millis) {
        try {
            Thread.sleep(millis);
            socket.close();
        } catch (InterruptedException | IOException nothing) {
            // It is over.
        }
    }

    static void say(String what) {
        System.err.println("finish: " + what);
    }

    public static void main(String[] words) {
        try {
            System.exit(run(words));
        } catch (IOException | InterruptedException | NumberFormatException failure) {
            say(failure.getMessage());
            System.exit(2);
        }
    }
}
