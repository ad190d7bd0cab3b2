//! Runs the program in a temporary directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A temporary directory to run `tenter` in.
pub(crate) struct TestDir(TempDir);

/// The output and exit code of a program.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl TestDir {
    pub(crate) fn new() -> TestDir {
        TestDir(tempfile::tempdir().expect("a temporary directory"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("it is written");
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.path().join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).expect("it is JSON")
    }

    pub(crate) fn lines(&self, name: &str) -> Vec<Value> {
        self.read(name).lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenter"));
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null());
        command.env("XDG_CONFIG_HOME", crate::CONFIG_HOME);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.command(arguments).output().expect("it runs").into()
    }

    /// A training run of a few steps.
    pub(crate) fn train(&self, more: &[&str]) -> Ran {
        let few = ["train", "--set", "trainer.max_epochs=2", "--set", "trainer.limit_train_batches=3"];
        self.run(&[&few, more].concat())
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

impl Ran {
    /// Checks that the input was refused with all of these texts, without a panic.
    #[track_caller]
    pub(crate) fn refused(&self, hints: &[&str]) {
        assert_eq!(self.code, 2, "{}\n{}", self.stdout, self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        for hint in hints {
            assert!(self.stderr.contains(hint), "no `{hint}` in: {}", self.stderr);
        }
    }

    #[track_caller]
    pub(crate) fn succeeded(self) -> Ran {
        assert_eq!(self.code, 0, "{}\n{}", self.stdout, self.stderr);
        self
    }
}
