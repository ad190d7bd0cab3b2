//! Random sequences of saves, removals and crashes, against a simple model of what must exist.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::faulty::{EIO, ENOSPC, Fault, Faulty};
use super::*;

/// An operation on a directory of checkpoints.
#[derive(Clone, Debug)]
enum Act {
    /// Saves under a name that may be taken, then sets `latest`, then removes the replaced checkpoints.
    Save { name: &'static str, replaces: Vec<&'static str> },
    /// Removes a checkpoint.
    Prune { name: &'static str },
    /// Removes leftovers of a killed process.
    Tidy,
}

const NAMES: [&str; 3] = ["a", "emergency-b", "deep/c"];

/// An act, and the fault at one of its disk operations, if any.
type Step = (Act, Option<(usize, Fault)>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || prop::sample::select(&NAMES[..]);
    let save = (name(), prop::collection::vec(name(), 0..3))
        .prop_map(|(name, replaces)| Act::Save { name, replaces });
    let act = prop_oneof![6 => save, 1 => name().prop_map(|name| Act::Prune { name }), 1 => Just(Act::Tidy)];
    let errors =
        vec![Fault::Fails(EIO), Fault::Fails(ENOSPC), Fault::FailsHalfway(EIO), Fault::FailsHalfway(ENOSPC)];
    let fault = prop_oneof![2 => Just(Fault::Dies), 1 => prop::sample::select(errors)];
    let fault = prop::option::weighted(0.7, (0..14_usize, fault));
    prop::collection::vec((act, fault), 1..12)
}

/// The numbers that each checkpoint may have after a fault, by name; `None` if it may be absent.
type Model = BTreeMap<&'static str, Vec<Option<u64>>>;

/// Saves as a trainer does, and updates the model after each part.
fn save_and_replace(
    disk: &dyn Disk,
    root: &Path,
    (name, number): (&'static str, u64),
    replaces: &[&'static str],
    model: &mut Model,
) -> Result<(), BoxError> {
    let path = root.join(name);
    model.entry(name).or_insert_with(|| vec![None]).push(Some(number));
    save(disk, &path, number)?;
    // The checkpoint is durable, so it must be found from now on.
    model.insert(name, vec![Some(number)]);
    set_link(disk, &root.join("latest"), &path)?;
    for old in replaces.iter().filter(|old| **old != name) {
        prune(disk, root, old, model)?;
    }
    Ok(())
}

fn prune(disk: &dyn Disk, root: &Path, name: &'static str, model: &mut Model) -> Result<(), BoxError> {
    model.entry(name).or_default().push(None);
    remove(disk, &root.join(name))?;
    model.insert(name, vec![None]);
    Ok(())
}

/// Compares each name with the model; existing checkpoints must be whole.
fn check(root: &Path, model: &mut Model) {
    for name in NAMES {
        let path = root.join(name);
        let left = exists(&path).unwrap().then(|| number_of(&path));
        let allowed = model.entry(name).or_insert_with(|| vec![None]);
        assert!(allowed.contains(&left), "{name}: {left:?} is none of {allowed:?}");
        *allowed = vec![left];
    }
    let newest = NAMES.iter().filter_map(|name| Some((model[name][0]?, root.join(name)))).max();
    assert_eq!(
        newest_whole(root, OnUnreadable::Stop).unwrap(),
        NewestCheckpoint { path: newest.map(|(_, path)| path), ..NewestCheckpoint::default() }
    );
    let listed = list(root).unwrap();
    assert!(listed.iter().all(|listed| listed.integrity == Integrity::Whole), "{listed:?}");
    assert_eq!(listed.len(), model.values().filter(|left| left[0].is_some()).count());
}

/// The remaining hidden names.
fn hidden_names(root: &Path) -> Vec<String> {
    let deep = root.join("deep");
    let deep = if deep.exists() { names(&deep) } else { Vec::new() };
    names(root).into_iter().chain(deep).filter(|name| name.starts_with('.')).collect()
}

fn play(steps: &[Step], exchanges: bool) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let mut model = Model::new();
    for (number, (act, fault)) in (1..).zip(steps) {
        let disk = fault.map_or_else(Faulty::never, |(at, fault)| Faulty::new(at, fault));
        let disk = if exchanges { disk } else { disk.without_exchange() };
        let done = match act {
            Act::Save { name, replaces } => {
                save_and_replace(&disk, root, (*name, number), replaces, &mut model)
            }
            Act::Prune { name } => prune(&disk, root, name, &mut model),
            Act::Tidy => clean_up(&disk, root),
        };
        assert!(done.is_ok() || disk.has_failed(), "{done:?}");
        let killed = disk.has_failed() && matches!(fault, Some((_, Fault::Dies)));
        if !killed || exchanges {
            check(root, &mut model);
        }
        if killed {
            // As the next process does first.
            clean_up(&Faulty::never(), root).unwrap();
            check(root, &mut model);
            assert_eq!(hidden_names(root), [""; 0]);
        }
    }
    clean_up(&Faulty::never(), root).unwrap();
    check(root, &mut model);
    assert_eq!(hidden_names(root), [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn durable_checkpoints_are_found_after_any_saves_removals_and_kills(
        steps in steps(), exchanges in any::<bool>(),
    ) {
        play(&steps, exchanges);
    }
}
