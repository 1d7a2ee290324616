//! What a gate is told over its control socket, on its way to the thread that obeys.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};

use lastbyte_gate::control::Commands;

/// What a gate can be told.
#[derive(Debug)]
pub(super) enum Order {
    /// To read its file anew, and to say what came of it.
    Reload(Sender<Result<String, String>>),
    /// To let flows come to their end, and to end.
    Drain,
}

/// Where orders are given.
#[derive(Debug)]
pub(super) struct Given {
    orders: Mutex<Sender<Order>>,
    /// A byte for each order, because the one who obeys waits for a descriptor.
    bell: PipeWriter,
}

/// Where orders are taken. Once it is gone, nobody obeys any more.
#[derive(Debug)]
pub(super) struct Taken {
    orders: Receiver<Order>,
    /// Readable when there is one.
    pub(super) bell: PipeReader,
    /// Without it the bell would ring for ever once nobody can give orders.
    _still: PipeWriter,
}

/// Both ends of the way that orders take.
pub(super) fn orders() -> io::Result<(Given, Taken)> {
    let (sender, receiver) = mpsc::channel();
    let (reader, writer) = io::pipe()?;
    let taken = Taken { orders: receiver, bell: reader, _still: writer.try_clone()? };
    Ok((Given { orders: Mutex::new(sender), bell: writer }, taken))
}

impl Taken {
    /// The next order, once the bell can be read.
    pub(super) fn next(&mut self) -> io::Result<Option<Order>> {
        self.bell.read_exact(&mut [0])?;
        Ok(self.orders.try_recv().ok())
    }
}

impl Given {
    /// Whether there is still somebody to obey.
    fn give(&self, order: Order) -> bool {
        let sent = self.orders.lock().is_ok_and(|orders| orders.send(order).is_ok());
        sent && (&self.bell).write_all(&[0]).is_ok()
    }
}

impl Commands for Given {
    fn reload(&self) -> Result<String, String> {
        let stopping = || "the gate is stopping".to_owned();
        let (sender, answer) = mpsc::channel();
        if !self.give(Order::Reload(sender)) {
            return Err(stopping());
        }
        answer.recv().unwrap_or_else(|_| Err(stopping()))
    }

    fn drain(&self) {
        // One that obeys no more drains already.
        self.give(Order::Drain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_arrive_and_their_answers_too() {
        let (given, mut taken) = orders().unwrap();
        let obeying = std::thread::spawn(move || {
            let Some(Order::Reload(answer)) = taken.next().unwrap() else { panic!("no order") };
            answer.send(Ok("done".to_owned())).unwrap();
            assert!(matches!(taken.next().unwrap(), Some(Order::Drain)));
        });
        assert_eq!(given.reload(), Ok("done".to_owned()));
        given.drain();
        obeying.join().unwrap();
        assert_eq!(given.reload(), Err("the gate is stopping".to_owned()));
        given.drain();
    }
}
