//! Effects of hooks outside of the run directory.

use std::fmt;
use std::path::{Component, Path, PathBuf};

/// Something that a hook does outside of the run directory. A hook declares it with
/// [`HookSpec::effect`](crate::HookSpec::effect), and the program lists all effects before it runs an
/// untrusted configuration. An effect contains no secrets: it names the environment variable that holds a
/// secret address.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// Runs a program with arguments.
    Command(Vec<String>),
    /// Sends requests to an address.
    Request(String),
    /// Uploads files of the run to a destination.
    Upload(String),
    /// Writes a file or directory.
    Write(PathBuf),
    /// Saves checkpoints in a directory. A hook can request checkpoints only there and below the checkpoints'
    /// root, and the paths in a checkpoint can refer to no other directory.
    SaveCheckpoints(PathBuf),
}

impl Effect {
    /// The effect of writing to a path, if it can be outside of the run directory: an absolute path, or one
    /// with `..`.
    #[must_use]
    pub fn of_writing(path: &Path) -> Option<Effect> {
        is_outside(path).then(|| Effect::Write(path.to_owned()))
    }

    /// The effect of saving checkpoints in a directory, if it can be outside of the checkpoints' root.
    #[must_use]
    pub fn of_saving(directory: &Path) -> Option<Effect> {
        is_outside(directory).then(|| Effect::SaveCheckpoints(directory.to_owned()))
    }
}

/// Whether a path can leave the directory that it is relative to.
fn is_outside(path: &Path) -> bool {
    !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// The number of characters of an effect that are shown.
const SHOWN: usize = 1500;

/// The text is escaped, since it may come from an untrusted configuration.
impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, text) = match self {
            Effect::Command(words) => ("runs the command", format!("{words:?}")),
            Effect::Request(address) => ("sends requests to", format!("{address:?}")),
            Effect::Upload(to) => ("uploads checkpoints to", format!("{to:?}")),
            Effect::Write(path) => ("writes to", format!("{:?}", path.to_string_lossy())),
            Effect::SaveCheckpoints(path) => {
                ("saves checkpoints in", format!("{:?}", path.to_string_lossy()))
            }
        };
        match text.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(f, "{what} {}… ({} more bytes)", &text[..end], text.len() - end),
            None => write!(f, "{what} {text}"),
        }
    }
}

/// The permission to act outside of the run directory, such as to run a command or to send a request.
///
/// Only [`RunInfo::effect_permit`](crate::RunInfo::effect_permit) returns one, and none in a dry run.
/// Functions that run commands or send requests take one as an argument, so no hook can skip the check.
#[derive(Clone, Copy, Debug)]
pub struct EffectPermit(pub(crate) ());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_an_effect_outside_unless_it_stays_below_the_run_directory() {
        for below in ["a.csv", "./a.csv", "a/b.csv"] {
            assert_eq!(Effect::of_writing(Path::new(below)), None, "{below}");
            assert_eq!(Effect::of_saving(Path::new(below)), None, "{below}");
        }
        for outside in ["/a.csv", "../a.csv", "a/../../b"] {
            assert_eq!(Effect::of_writing(Path::new(outside)), Some(Effect::Write(outside.into())));
            assert_eq!(Effect::of_saving(Path::new(outside)), Some(Effect::SaveCheckpoints(outside.into())));
        }
    }

    #[test]
    fn an_effect_is_shown_escaped_and_bounded() {
        let words = ["sh", "-c", "echo \u{1b}[2J"].map(str::to_owned).to_vec();
        let shown = Effect::Command(words).to_string();
        assert_eq!(shown, r#"runs the command ["sh", "-c", "echo \u{1b}[2J"]"#);
        let shown = Effect::Upload("x".repeat(1_000_000)).to_string();
        assert!(shown.len() < 1600 && shown.ends_with("… (998502 more bytes)"), "{}", shown.len());
    }
}
