//! The fingerprints of data, program and processor, which determine the results together with the configuration.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use tenterhook_files::Fingerprint;

use crate::config::{ConfigChange, Impact};

/// The fingerprints of data, program and processor. `run.json` and every checkpoint have them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// The data of each loader, by split and name, such as `train/digits`. Data without a fingerprint are left out.
    pub data: BTreeMap<String, Fingerprint>,
    /// The executable; unset if it could not be read.
    pub program: Option<Fingerprint>,
    /// The architecture of the processor, and its features that can change results in their last bits.
    pub processor: String,
}

impl Identity {
    /// The program and the processor of this process, without data. The executable is read once per process.
    pub(crate) fn current() -> Identity {
        static PROGRAM: OnceLock<Option<Fingerprint>> = OnceLock::new();
        let read = || std::env::current_exe().ok().and_then(|path| Fingerprint::of_file(&path).ok());
        let program = PROGRAM.get_or_init(read).clone();
        Identity { data: BTreeMap::new(), program, processor: processor() }
    }

    /// The data that both sides have and that differ. Each change is harmful.
    pub(crate) fn data_changes(&self, new: &Identity) -> Vec<ConfigChange> {
        let value = |fingerprint: &Fingerprint| Some(fingerprint.as_str().into());
        let both = self.data.iter().filter_map(|(key, old)| Some((key, old, new.data.get(key)?)));
        let changed = both.filter(|(_, old, new)| old != new);
        let change = |(key, old, new): (&String, &Fingerprint, &Fingerprint)| ConfigChange {
            key: key.clone(),
            old: value(old),
            new: value(new),
            impact: Impact::Harmful,
        };
        changed.map(change).collect()
    }

    /// A sentence about a change of program or processor. A fingerprint that only one side has is no change.
    pub(crate) fn environment_change(&self, new: &Identity) -> Option<String> {
        let differ = |old: &str, new: &str| !old.is_empty() && !new.is_empty() && old != new;
        let text =
            |program: &Option<Fingerprint>| program.as_ref().map(ToString::to_string).unwrap_or_default();
        let what = match (
            differ(&text(&self.program), &text(&new.program)),
            differ(&self.processor, &new.processor),
        ) {
            (false, false) => return None,
            (true, false) => "by a different build of this program",
            (false, true) => "on a different kind of CPU",
            (true, true) => "by a different build of this program on a different kind of CPU",
        };
        Some(format!("the checkpoint was written {what}: results may differ in their last bits"))
    }
}

/// The architecture of the processor and its features.
pub(crate) fn processor() -> String {
    [std::env::consts::ARCH].into_iter().chain(features()).collect::<Vec<_>>().join(" ")
}

/// The processor features that numeric libraries detect at run time.
#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    macro_rules! detected {
        ($($feature:tt)*) => { [$((std::arch::is_x86_feature_detected!($feature), $feature)),*] };
    }
    let known = detected!(
        "sse4.1" "avx" "avx2" "fma" "f16c" "avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vnni" "avx512bf16"
    );
    known.into_iter().filter_map(|(has, feature)| has.then_some(feature)).collect()
}

/// The processor features that numeric libraries detect at run time.
#[cfg(target_arch = "aarch64")]
fn features() -> Vec<&'static str> {
    macro_rules! detected {
        ($($feature:tt)*) => { [$((std::arch::is_aarch64_feature_detected!($feature), $feature)),*] };
    }
    let known = detected!("neon" "fp16" "dotprod" "bf16" "i8mm" "sve" "sve2");
    known.into_iter().filter_map(|(has, feature)| has.then_some(feature)).collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<&'static str> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(data: &[(&str, &str)], program: &str, processor: &str) -> Identity {
        let data = data.iter().map(|(key, text)| ((*key).to_owned(), Fingerprint::named(*text))).collect();
        Identity { data, program: Some(Fingerprint::named(program)), processor: processor.to_owned() }
    }

    #[test]
    fn only_what_both_sides_know_can_differ() {
        let old = identity(&[("train/a", "1"), ("val/a", "2"), ("test/a", "3")], "p", "x86_64");
        let new = identity(&[("train/a", "1"), ("val/a", "4"), ("train/b", "5")], "p", "x86_64");
        let keys: Vec<_> =
            old.data_changes(&new).into_iter().map(|difference| difference.to_string()).collect();
        assert_eq!(keys, ["val/a: \"2\" -> \"4\""]);
        assert_eq!(old.environment_change(&new), None);
        assert_eq!(Identity::default().environment_change(&new), None, "it was not written down then");
        let other = identity(&[], "q", "x86_64 avx2");
        let said = old.environment_change(&other).expect("both differ");
        assert!(said.contains("a different build of this program on a different kind of CPU"), "{said}");
    }

    #[test]
    fn this_process_knows_its_program_and_processor() {
        let this = Identity::current();
        assert!(this.program.is_some() && this.processor.starts_with(std::env::consts::ARCH), "{this:?}");
        assert_eq!(Identity::current(), this);
    }
}
