//! A running program that can be paused, continued and killed.

use std::fs;
use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use crate::tenter::TestDir;

/// A shell that sends signals, which is faster than a new process for each.
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
        // The process may have ended.
        writeln!(orders, "kill -{signal} {process} 2>/dev/null").expect("the shell listens");
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.shell.wait();
    }
}

/// One process of a run.
pub(super) struct RunProcess {
    child: Child,
    said: std::path::PathBuf,
}

impl RunProcess {
    pub(super) fn start(dir: &TestDir, arguments: &[&str]) -> RunProcess {
        let said = dir.path().join("said");
        let file = fs::File::create(&said).expect("a file for what it says");
        let mut command = dir.command(arguments);
        let child = command.stdout(Stdio::null()).stderr(file).spawn().expect("it starts");
        RunProcess { child, said }
    }

    /// Whether the process has ended, which must be with exit code 0.
    pub(super) fn has_ended(&mut self) -> bool {
        let Some(status) = self.child.try_wait().expect("it can be asked") else { return false };
        self.assert_success(status.code());
        true
    }

    pub(super) fn wait(mut self) {
        let code = self.child.wait().expect("it ends").code();
        self.assert_success(code);
    }

    fn assert_success(&self, code: Option<i32>) {
        assert_eq!(code, Some(0), "{}", fs::read_to_string(&self.said).unwrap_or_default());
    }

    /// Pauses all threads of the process. `false` if it has ended.
    pub(super) fn stop(&mut self, signals: &mut Signals) -> bool {
        signals.send("STOP", self.child.id());
        while !self.is_paused() {
            if self.has_ended() {
                return false;
            }
            std::thread::sleep(Duration::from_micros(30));
        }
        true
    }

    fn is_paused(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let states: Vec<_> = threads
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
            .collect();
        // The state follows the name, which is in parentheses and may contain any character.
        let is_stopped =
            |stat: &String| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T"));
        !states.is_empty() && states.iter().all(is_stopped)
    }

    pub(super) fn resume(&self, signals: &mut Signals) {
        signals.send("CONT", self.child.id());
    }

    /// Kills the process with SIGKILL.
    pub(super) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }
}
