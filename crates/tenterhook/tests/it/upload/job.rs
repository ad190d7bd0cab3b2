//! A training run that uploads, in a child process if it needs environment variables, because they belong to the
//! whole process.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use tenterhook::hooks::{Checkpoint, CheckpointOptions, Upload};
use tenterhook::run::{RunDirectoryOptions, RunLock, SinkDeliveries};
use tenterhook::toy::Toy;
use tenterhook::{DeliveryStats, FromOptions, RunError, closure};

use crate::call_log::CallLog;
use crate::lab::{Lab, bits, data, epochs, trainer};
use crate::run_directory::plan;

pub const ID: &str = "the-run";
/// The environment variable with the job of the child process.
const JOB: &str = "TENTERHOOK_TEST_OF_UPLOAD";
pub const SECRETS: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "AKIDTHATNOBODYSEES"),
    ("AWS_SECRET_ACCESS_KEY", "secret/that+nobody=sees"),
    ("AWS_SESSION_TOKEN", "token-that-nobody-sees"),
];

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Job {
    pub root: PathBuf,
    /// The options of the hook; `None` for a training run without it.
    pub hook: Option<String>,
    pub epochs: i64,
    pub resume: bool,
    pub end: End,
    /// Additional options of the hook `checkpoint`.
    pub checkpoint: String,
    /// The number of additional bytes in each checkpoint.
    pub ballast: usize,
}

/// The end of the training, in its second epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum End {
    #[default]
    ByItself,
    Interrupted,
    Failed,
}

/// The result of a training run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ended {
    pub bits: Vec<u32>,
    pub how: String,
    pub told: Vec<String>,
    pub sinks: Vec<SinkDeliveries>,
}

impl Ended {
    pub fn sink(&self) -> &DeliveryStats {
        &self.sinks[0].stats
    }

    /// All notices, as text.
    pub fn said(&self) -> String {
        self.told.join("\n")
    }
}

impl Job {
    pub fn new(root: &Path, hook: Option<String>) -> Job {
        Job { root: root.to_owned(), hook, epochs: 3, ..Job::default() }
    }

    pub fn checkpoints(&self) -> PathBuf {
        self.root.join("runs").join(ID).join("checkpoints")
    }

    /// Trains.
    pub fn run(&self) -> Ended {
        let lock = self.resume.then(|| RunLock::acquire(self.root.join("runs").join(ID)).unwrap());
        let plan = RunDirectoryOptions { id: Some(ID.into()), resume: lock, ..plan(&self.root) };
        let mut trainer = trainer(epochs(self.epochs)).with_run_directory(plan);
        if self.resume {
            let newest = tenterhook::checkpoint::newest_whole(
                &self.checkpoints(),
                tenterhook::checkpoint::OnUnreadable::Stop,
            )
            .unwrap();
            trainer = trainer.restoring(newest.path.expect("a checkpoint")).accepting_other_hooks();
        }
        let checkpoint: CheckpointOptions = toml::from_str(&self.checkpoint).unwrap();
        trainer.add_hook(Checkpoint::new(checkpoint).unwrap()).unwrap();
        if let Some(hook) = &self.hook {
            trainer.add_hook(Upload::from_options(toml::from_str(hook).unwrap()).unwrap()).unwrap();
        }
        let ballast = "x".repeat(self.ballast);
        let carry =
            closure::on_save_checkpoint("carry", move |cx| cx.entries.put("ballast", &ballast).unwrap());
        trainer.add_hook(carry).unwrap();
        let (handle, end) = (trainer.interrupt_handle(), self.end);
        let call_log = CallLog::default();
        let fails = call_log.clone();
        let mut lab = Lab::new(Toy::default(), &call_log).with_handler(move |place, cx| {
            if place == "training_step" && cx.epoch() == 1 {
                match end {
                    End::ByItself => {}
                    End::Interrupted => handle.request("SIGINT"),
                    End::Failed => fails.fails_at("module", "on_step_end"),
                }
            }
        });
        let fitted = trainer.fit(&mut lab, &mut data(2, 1));
        let (how, report) = match fitted {
            Ok(report) => (format!("{:?}", report.outcome), report),
            Err(RunError::Failed { failure, report, .. }) => (failure.to_string(), *report),
            Err(error) => panic!("{error}"),
        };
        let told = report.notices.iter().map(ToString::to_string).collect();
        Ended { bits: bits(&lab.toy), how, told, sinks: report.sinks }
    }

    /// Trains in a child process with these environment variables, and searches its output and files for
    /// secrets. An empty variable is removed.
    pub fn run_with(&self, variables: &[(&str, &str)]) -> Ended {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "upload::job::does_its_job", "--nocapture"]);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("AWS_") {
                child.env_remove(name);
            }
        }
        child.envs(SECRETS).envs(variables.iter().copied());
        child.env("AWS_REGION", "us-east-1").env("NO_PROXY", "127.0.0.1");
        for (name, _) in variables.iter().filter(|(_, value)| value.is_empty()) {
            child.env_remove(name);
        }
        let output = child.env(JOB, serde_json::to_string(self).unwrap()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{said}");
        let result = std::fs::read_to_string(self.root.join("result.json")).unwrap();
        hold_no_secret("its output", said.as_bytes());
        hold_no_secret("its report", result.as_bytes());
        search(&self.root.join("runs"));
        serde_json::from_str(&result).unwrap()
    }
}

fn hold_no_secret(what: &str, bytes: &[u8]) {
    for (name, secret) in SECRETS {
        let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!found, "{what} holds {name}: {}", String::from_utf8_lossy(bytes));
    }
}

/// Searches every file below a directory for secrets.
fn search(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            search(&path);
        } else {
            hold_no_secret(&path.display().to_string(), &std::fs::read(&path).unwrap());
        }
    }
}

/// The child process; in a normal test run this does nothing.
#[test]
fn does_its_job() {
    let Ok(job) = std::env::var(JOB) else { return };
    let job: Job = serde_json::from_str(&job).unwrap();
    let ended = job.run();
    std::fs::write(job.root.join("result.json"), serde_json::to_string(&ended).unwrap()).unwrap();
}
