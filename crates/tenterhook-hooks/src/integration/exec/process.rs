//! Runs a command until it ends, its timeout expires or the run ends. Its pipes never block the caller.

use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tenterhook_core::EffectPermit;

use super::process_tree::ProcessTree;

/// The number of bytes of standard output to keep, from its start.
const STDOUT_BYTES: usize = 8 * 1024;
/// The number of bytes of standard error to keep, from its end.
const STDERR_BYTES: usize = 2 * 1024;
/// How long the pipes are read after the command has ended: background processes may hold them open.
const DRAIN_TIME: Duration = Duration::from_millis(500);

/// The standard output of a command that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Output {
    /// The first lines.
    pub(super) lines: Vec<String>,
    /// How many bytes were dropped.
    pub(super) dropped: u64,
}

/// When a command is killed.
pub(super) struct Limits<'a> {
    pub(super) timeout: Duration,
    /// Whether the run no longer waits for the command.
    pub(super) is_cancelled: &'a dyn Fn() -> bool,
}

/// Runs a command with this standard input. The error describes the failure, without the command.
pub(super) fn run(
    _: EffectPermit,
    mut command: Command,
    input: Vec<u8>,
    limits: &Limits<'_>,
) -> Result<Output, String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // In its own process group, the command does not receive Ctrl-C and can be killed with its children.
    command.process_group(0);
    let spawned = ProcessTree::spawn(&mut command);
    let (mut child, tree) = spawned.map_err(|error| format!("could not be started: {error}"))?;
    let (stdout, stderr) = match open_pipes(&mut child, input) {
        Ok(pipes) => pipes,
        Err(error) => {
            tree.kill(&mut child);
            return Err(format!("has no pipes: {error}"));
        }
    };
    let ended = wait(&mut child, limits);
    if ended.is_err() {
        tree.kill(&mut child);
    }
    let until = Instant::now() + DRAIN_TIME;
    let (stdout, stderr) = (stdout.read_until(until), stderr.read_until(until));
    let problem = match ended {
        Ok(status) if status.success() => {
            let text = String::from_utf8_lossy(&stdout.bytes);
            return Ok(Output { lines: text.lines().map(str::to_owned).collect(), dropped: stdout.dropped });
        }
        Ok(status) => exit_text(status),
        Err(killed) => killed,
    };
    let text = String::from_utf8_lossy(&stderr.bytes);
    let text = text.trim();
    Err(if text.is_empty() { problem } else { format!("{problem}; the end of its standard error: {text}") })
}

fn exit_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (_, Some(signal)) => format!("was ended by signal {signal}"),
        _ => "failed".to_owned(),
    }
}

/// Waits until the command ends; the error is the reason to kill it.
fn wait(child: &mut Child, limits: &Limits<'_>) -> Result<ExitStatus, String> {
    let (start, mut nap) = (Instant::now(), Duration::from_millis(1));
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => {}
            Err(error) => return Err(format!("could not be waited for: {error}")),
        }
        if start.elapsed() >= limits.timeout {
            return Err(format!("was killed because it took longer than `timeout`, {:?}", limits.timeout));
        }
        if (limits.is_cancelled)() {
            return Err("was killed because the run had ended; raise `flush_timeout`".to_owned());
        }
        thread::sleep(nap);
        nap = (nap * 2).min(Duration::from_millis(20));
    }
}

/// Serves the pipes on their own threads, so that a command that does not read, or does not stop writing, blocks nothing.
fn open_pipes(child: &mut Child, input: Vec<u8>) -> std::io::Result<(PipeReader, PipeReader)> {
    if let Some(mut stdin) = child.stdin.take() {
        // A command may end without reading.
        thread::Builder::new().name("exec stdin".into()).spawn(move || drop(stdin.write_all(&input)))?;
    }
    let stdout =
        child.stdout.take().map(|pipe| PipeReader::start(pipe, Keep::First(STDOUT_BYTES))).transpose()?;
    let stderr =
        child.stderr.take().map(|pipe| PipeReader::start(pipe, Keep::Last(STDERR_BYTES))).transpose()?;
    Ok((stdout.unwrap_or_default(), stderr.unwrap_or_default()))
}

#[derive(Clone, Copy)]
enum Keep {
    First(usize),
    Last(usize),
}

/// The kept part of a pipe's output.
#[derive(Clone, Debug, Default)]
struct Captured {
    bytes: Vec<u8>,
    dropped: u64,
}

impl Captured {
    fn add(&mut self, bytes: &[u8], keep: Keep) {
        self.bytes.extend_from_slice(bytes);
        let (Keep::First(most) | Keep::Last(most)) = keep;
        let surplus = self.bytes.len().saturating_sub(most);
        match keep {
            Keep::First(most) => self.bytes.truncate(most),
            Keep::Last(_) => drop(self.bytes.drain(..surplus)),
        }
        self.dropped += surplus as u64;
    }
}

/// A thread that reads a pipe.
#[derive(Default)]
struct PipeReader {
    captured: Arc<Mutex<Captured>>,
    /// Disconnected when the pipe is closed.
    open: Option<Receiver<()>>,
}

impl PipeReader {
    fn start(mut pipe: impl Read + Send + 'static, keep: Keep) -> std::io::Result<PipeReader> {
        let captured = Arc::<Mutex<Captured>>::default();
        let (closed, open) = channel();
        let into = captured.clone();
        let read = move || {
            let _closed = closed;
            let mut buffer = [0; 8 * 1024];
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                into.lock().unwrap_or_else(PoisonError::into_inner).add(&buffer[..count], keep);
            }
        };
        thread::Builder::new().name("exec output".into()).spawn(read)?;
        Ok(PipeReader { captured, open: Some(open) })
    }

    /// Waits until the pipe is closed or this time is reached, and returns the output so far.
    fn read_until(self, latest: Instant) -> Captured {
        if let Some(open) = self.open {
            let _ = open.recv_timeout(latest.saturating_duration_since(Instant::now()));
        }
        self.captured.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use tenterhook_core::RunInfo;

    use super::*;

    /// Longer than any of these commands takes.
    const LONG: Duration = Duration::from_mins(1);

    fn sh(script: &str, input: &[u8], timeout: Duration) -> Result<Output, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(outside(), command, input.to_vec(), &Limits { timeout, is_cancelled: &|| false })
    }

    fn outside() -> EffectPermit {
        RunInfo::default().effect_permit().expect("it is no dry run")
    }

    fn lines(lines: &[&str]) -> Result<Output, String> {
        Ok(Output { lines: lines.iter().map(|line| (*line).to_owned()).collect(), dropped: 0 })
    }

    #[test]
    fn a_command_reads_its_input_and_its_lines_are_returned() {
        assert_eq!(sh("cat; echo; echo two", b"one", LONG), lines(&["one", "two"]));
        assert_eq!(sh("true", b"", LONG), lines(&[]));
    }

    #[test]
    fn a_failed_command_is_an_error_with_the_end_of_its_standard_error() {
        assert_eq!(
            sh("echo no >&2; exit 3", b"", LONG),
            Err("ended with exit code 3; the end of its standard error: no".into())
        );
        assert_eq!(sh("exit 4", b"", LONG), Err("ended with exit code 4".into()));
        assert_eq!(sh("kill -9 $$", b"", LONG), Err("was ended by signal 9".into()));
        let missing = run(
            outside(),
            Command::new("/no/such/program"),
            Vec::new(),
            &Limits { timeout: LONG, is_cancelled: &|| false },
        );
        let error = missing.expect_err("it is not there");
        assert!(error.starts_with("could not be started: "), "{error}");
    }

    #[test]
    fn a_command_that_does_not_read_or_floods_its_pipes_blocks_nothing() {
        let large = vec![b'x'; 1 << 20];
        assert_eq!(sh("exit 0", &large, LONG), lines(&[]));
        let said = sh("head -c 3000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero >&2", &large, LONG);
        let said = said.expect("it ends well");
        assert_eq!(
            (said.lines.len(), said.lines[0].len(), said.dropped),
            (1, STDOUT_BYTES, 3_000_000 - STDOUT_BYTES as u64)
        );
        let error = sh("seq 1 100000 >&2; exit 1", b"", LONG).expect_err("it fails");
        assert!(error.ends_with("\n99999\n100000") && error.len() < STDERR_BYTES + 100, "{}", error.len());
    }

    #[test]
    fn background_processes_of_a_command_block_nothing() {
        let start = Instant::now();
        assert_eq!(sh("sleep 50 & echo done", b"", LONG), lines(&["done"]));
        assert!(start.elapsed() < Duration::from_secs(40));
    }

    #[test]
    fn a_command_is_killed_with_all_its_children_after_its_timeout() {
        let dir = tempfile::tempdir().expect("a directory");
        let script =
            format!("(sleep 2; touch {}) & echo waiting >&2; wait", dir.path().join("alive").display());
        let error = sh(&script, b"", Duration::from_millis(500)).expect_err("it takes too long");
        assert_eq!(
            error,
            "was killed because it took longer than `timeout`, 500ms; the end of its standard error: waiting"
        );
        thread::sleep(Duration::from_secs(3));
        assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 0, "a child of it lives");
    }

    #[test]
    fn a_running_command_is_killed_at_the_end_of_the_run() {
        let mut command = Command::new("sleep");
        command.arg("50");
        let error = run(outside(), command, Vec::new(), &Limits { timeout: LONG, is_cancelled: &|| true })
            .expect_err("it is over");
        assert!(error.contains("raise `flush_timeout`"), "{error}");
    }
}
