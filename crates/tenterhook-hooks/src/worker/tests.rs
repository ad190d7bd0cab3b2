use std::sync::mpsc;

use tenterhook_core::backtraces::PanicError;

use super::*;

/// A timeout that a passing test never reaches.
const LONG: Duration = Duration::from_mins(1);

/// Processes one number per message on `go`; fails at 13 and panics at 99.
struct Numbers {
    go: mpsc::Receiver<()>,
    done: mpsc::Sender<String>,
}

impl Work for Numbers {
    type Item = u64;

    fn process(&mut self, number: u64, _: &WorkerContext) -> HookResult {
        self.go.recv()?;
        match number {
            13 => Err("unlucky".into()),
            99 => panic!("too many"),
            number => Ok(self.done.send(number.to_string())?),
        }
    }

    fn flush(&mut self, _: &WorkerContext) -> HookResult {
        Ok(self.done.send("flushed".into())?)
    }
}

fn numbers(queue: QueueOptions) -> (Worker<u64>, mpsc::Sender<()>, mpsc::Receiver<String>) {
    let ((go, gone), (done, seen)) = (mpsc::channel(), mpsc::channel());
    (Worker::start("numbers", queue, Numbers { go: gone, done }).expect("it starts"), go, seen)
}

fn queue(capacity: usize, when_full: WhenFull) -> QueueOptions {
    QueueOptions { capacity, when_full, flush_timeout: LONG }
}

#[test]
fn everything_arrives_in_order_and_is_flushed_before_the_end() {
    let (mut worker, go, seen) = numbers(queue(100, WhenFull::DropOldest));
    for number in 50..90 {
        worker.send(number).expect("nothing failed");
        go.send(()).expect("it runs");
    }
    worker.finish().expect("nothing failed");
    let mut seen: Vec<_> = seen.iter().collect();
    assert_eq!(seen.pop().as_deref(), Some("flushed"));
    seen.retain(|seen| seen != "flushed");
    assert_eq!(seen, (50..90).map(|number| number.to_string()).collect::<Vec<_>>());
    let sent = worker.delivery_stats();
    assert_eq!((sent.sent, sent.delivered, sent.dropped, sent.lost), (40, 40, 0, 0));
    assert_eq!(sent.waited, Duration::ZERO);
    worker.finish().expect("the second time there is nothing to do");
}

#[test]
fn the_oldest_item_is_dropped_and_counted_and_training_never_waits() {
    let (mut worker, go, seen) = numbers(queue(2, WhenFull::DropOldest));
    worker.send(0).expect("nothing failed");
    // Wait until the first item is being processed, so that the queue is empty.
    while !worker.queue.lock().busy {
        std::thread::yield_now();
    }
    for number in 1..=5 {
        worker.send(number).expect("nothing failed");
    }
    for _ in 0..3 {
        go.send(()).expect("it runs");
    }
    worker.finish().expect("nothing failed");
    let seen: Vec<_> = seen.iter().filter(|seen| seen != "flushed").collect();
    assert_eq!(seen, ["0", "4", "5"]);
    let sent = worker.delivery_stats();
    assert_eq!((sent.sent, sent.delivered, sent.dropped), (6, 3, 3));
    assert_eq!(sent.waited, Duration::ZERO);
}

#[test]
fn with_block_training_waits_and_nothing_is_dropped() {
    let (mut worker, go, seen) = numbers(queue(1, WhenFull::Block));
    let feeder = std::thread::spawn(move || (0..20).for_each(|_| go.send(()).unwrap_or(())));
    for number in 20..40 {
        worker.send(number).expect("nothing failed");
    }
    feeder.join().expect("it ends");
    worker.finish().expect("nothing failed");
    assert_eq!(seen.iter().filter(|seen| seen != "flushed").count(), 20);
    assert_eq!((worker.delivery_stats().delivered, worker.delivery_stats().dropped), (20, 0));
}

#[test]
fn failures_are_returned_and_the_worker_continues() {
    let (mut worker, go, seen) = numbers(queue(100, WhenFull::DropOldest));
    for number in [13, 99, 13, 7] {
        worker.send(number).unwrap_or(());
    }
    for _ in 0..4 {
        go.send(()).expect("it runs");
    }
    assert_eq!(seen.recv().as_deref(), Ok("7"));
    let error = worker.check().expect_err("some failed").to_string();
    assert_eq!(error, "unlucky (and 2 more since)");
    worker.send(99).expect("earlier failures are already returned");
    go.send(()).expect("it runs");
    let error = worker.finish().expect_err("it panicked");
    assert_eq!(error.to_string(), "its worker panicked: too many");
    assert!(error.is::<PanicError>(), "its hook has panicked");
    assert_eq!((worker.delivery_stats().delivered, worker.delivery_stats().failed), (1, 4));
}

#[test]
fn items_not_processed_in_time_are_lost_and_reported() {
    let timeout =
        QueueOptions { flush_timeout: Duration::from_millis(20), ..queue(100, WhenFull::DropOldest) };
    let (mut worker, go, _seen) = numbers(timeout);
    for number in 0..5 {
        worker.send(number).expect("nothing failed");
    }
    while !worker.queue.lock().busy {
        std::thread::yield_now();
    }
    let error = worker.finish().expect_err("no item may finish").to_string();
    assert_eq!(error, "5 of 5 were lost: not processed within 0.02 s after the end (`flush_timeout`)");
    assert_eq!(worker.delivery_stats().lost, 5);
    drop(go);
}

/// Retries until the deadline, and then fails.
struct Stubborn(mpsc::Sender<Option<Duration>>);

impl Work for Stubborn {
    type Item = ();
    fn process(&mut self, (): (), cx: &WorkerContext) -> HookResult {
        self.0.send(cx.time_left())?;
        while cx.pause(LONG) {}
        Err(format!("given up with {:?} left", cx.time_left()).into())
    }
}

#[test]
fn a_worker_that_waits_for_a_retry_ends_at_the_deadline() {
    let (sender, receiver) = mpsc::channel();
    let queue = QueueOptions { flush_timeout: Duration::from_millis(50), ..QueueOptions::default() };
    let mut worker = Worker::start("stubborn", queue, Stubborn(sender)).expect("it starts");
    worker.send(()).expect("nothing failed");
    assert_eq!(receiver.recv(), Ok(None), "there is no deadline yet");
    let error = worker.finish().expect_err("it had no time").to_string();
    // The deadline interrupts the pause before the next retry.
    while worker.queue.lock().shutdown != queue::Shutdown::Done {
        std::thread::yield_now();
    }
    let later = worker.check().err().map(|error| error.to_string()).unwrap_or_default();
    assert!((error + &later).contains("given up with Some(0ns) left"), "{later}");
}

struct Clockwork(mpsc::Sender<&'static str>);

impl Work for Clockwork {
    type Item = ();
    fn process(&mut self, (): (), _: &WorkerContext) -> HookResult {
        Ok(self.0.send("taken")?)
    }
    fn tick_interval(&self) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }
    fn on_tick(&mut self, _: &WorkerContext) -> HookResult {
        Ok(self.0.send("tick")?)
    }
}

#[test]
fn a_worker_ticks_without_items() {
    let (sender, receiver) = mpsc::channel();
    let mut worker =
        Worker::start("clockwork", QueueOptions::default(), Clockwork(sender)).expect("it starts");
    assert_eq!(receiver.iter().take(3).collect::<Vec<_>>(), ["tick"; 3]);
    worker.send(()).expect("nothing failed");
    worker.finish().expect("nothing failed");
    assert_eq!(receiver.iter().filter(|event| *event == "taken").count(), 1);
}

#[test]
fn dropping_a_worker_processes_its_items() {
    let (mut worker, go, seen) = numbers(queue(100, WhenFull::DropOldest));
    for number in 0..3 {
        worker.send(number).expect("nothing failed");
        go.send(()).expect("it runs");
    }
    drop(worker);
    assert_eq!(seen.iter().filter(|seen| seen != "flushed").count(), 3);
}

thread_local! {
    /// Workers started by this thread process no items while this lock is held for writing.
    pub(crate) static GATE: std::cell::RefCell<Arc<std::sync::RwLock<()>>> = std::cell::RefCell::default();
}

/// Work that waits for the [`GATE`] of the thread that started its worker.
pub(crate) struct Gated<W> {
    work: W,
    gate: Arc<std::sync::RwLock<()>>,
}

impl<W> Gated<W> {
    pub(crate) fn new(work: W) -> Gated<W> {
        Gated { work, gate: GATE.with(|gate| Arc::clone(&gate.borrow())) }
    }
}

impl<W: Work> Work for Gated<W> {
    type Item = W::Item;

    fn start(&mut self, cx: &WorkerContext) -> HookResult {
        self.work.start(cx)
    }

    fn process(&mut self, item: W::Item, cx: &WorkerContext) -> HookResult {
        drop(self.gate.read());
        self.work.process(item, cx)
    }

    fn flush(&mut self, cx: &WorkerContext) -> HookResult {
        self.work.flush(cx)
    }

    fn tick_interval(&self) -> Option<Duration> {
        self.work.tick_interval()
    }

    fn on_tick(&mut self, cx: &WorkerContext) -> HookResult {
        self.work.on_tick(cx)
    }
}
