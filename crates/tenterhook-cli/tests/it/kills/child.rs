//! The program under way, which can be stopped to have a look, let go on, and killed.

use std::fs;
use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::tenter::Place;

/// A shell that sends signals: its own `kill` is quicker than to start a program for each.
pub(super) struct Signals {
    shell: Child,
    orders: Option<ChildStdin>,
}

impl Signals {
    pub(super) fn new() -> Signals {
        let mut shell = Command::new("sh").stdin(Stdio::piped()).spawn().expect("a shell");
        let orders = shell.stdin.take();
        Signals { shell, orders }
    }

    fn send(&mut self, signal: &str, process: u32) {
        let orders = self.orders.as_mut().expect("it is open until the end");
        // One that is no longer there needs none.
        writeln!(orders, "kill -{signal} {process} 2>/dev/null").expect("the shell listens");
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.shell.wait();
    }
}

/// A part of a run.
pub(super) struct Part {
    child: Child,
    said: std::path::PathBuf,
}

impl Part {
    pub(super) fn start(place: &Place, arguments: &[&str]) -> Part {
        let said = place.path().join("said");
        let file = fs::File::create(&said).expect("a file for what it says");
        let mut command = place.command(arguments);
        let child = command.stdout(Stdio::null()).stderr(file).spawn().expect("it starts");
        Part { child, said }
    }

    /// Whether it has come to its end by itself, which must be a good one.
    pub(super) fn has_ended(&mut self) -> bool {
        let Some(status) = self.child.try_wait().expect("it can be asked") else { return false };
        self.must_be_good(status.code());
        true
    }

    pub(super) fn wait(mut self) {
        let code = self.child.wait().expect("it ends").code();
        self.must_be_good(code);
    }

    fn must_be_good(&self, code: Option<i32>) {
        assert_eq!(code, Some(0), "{}", fs::read_to_string(&self.said).unwrap_or_default());
    }

    /// Stops all its threads; returns once they stand still. `false`: it has ended.
    pub(super) fn stop(&mut self, signals: &mut Signals) -> bool {
        signals.send("STOP", self.child.id());
        while !self.stands_still() {
            if self.has_ended() {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    fn stands_still(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let states: Vec<_> = threads
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
            .collect();
        // The state comes behind the name, which stands in parentheses and may hold anything.
        let is_stopped =
            |stat: &String| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T"));
        !states.is_empty() && states.iter().all(is_stopped)
    }

    pub(super) fn go_on(&self, signals: &mut Signals) {
        signals.send("CONT", self.child.id());
    }

    /// At once, whatever it does.
    pub(super) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }
}
