//! The power is cut at every single operation: what was not synced is lost, and no whole checkpoint is.

use super::power::{Persisted, PowerCut};
use super::*;

type Act<'a> = &'a dyn Fn(&dyn Disk, &Path) -> Result<(), BoxError>;

/// What is found after the power came back, once it is tidied.
struct After {
    whole: Vec<u64>,
    newest: u64,
    latest: Option<u64>,
    /// Whether the action had ended.
    done: bool,
    /// For messages.
    what: String,
}

/// Does something to two checkpoints, of which `latest` is the newer, with a power cut at every operation in turn, and at
/// last one after all of them.
fn at_every_operation(exchanges: bool, act: Act<'_>, check: &dyn Fn(&After)) {
    for at in 0.. {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("checkpoints");
        std::fs::create_dir(&root).unwrap();
        let disk = PowerCut::new(&root, exchanges);
        save(&disk, &root.join("older"), 1).unwrap();
        save(&disk, &root.join("a"), 2).unwrap();
        point(&disk, &root.join("latest"), &root.join("a")).unwrap();
        disk.settle_and_cut_at(at);
        let acted = act(&disk, &root);
        let done = !disk.was_cut();
        assert!(!done || acted.is_ok(), "nothing was in the way: {acted:?}");
        for persisted in Persisted::ALL {
            let what = format!("cut at {at}, persisted {persisted:?}");
            let left = tempfile::tempdir().unwrap();
            let root = left.path();
            disk.restore(root, persisted);
            tidy(&RealDisk, root).expect(&what);
            let listed = list(root).expect(&what);
            let damaged: Vec<_> =
                listed.iter().filter(|listed| listed.condition != Condition::Whole).collect();
            assert!(damaged.is_empty(), "{what}: {damaged:?}");
            assert!(names(root).iter().all(|name| !name.starts_with('.')), "{what}: {:?}", names(root));
            let mut whole: Vec<_> = listed.iter().map(|listed| number_of(&listed.path)).collect();
            whole.sort_unstable();
            let newest = newest_whole(root, OnUnreadable::Stop).expect(&what);
            assert_eq!(newest.skipped, [], "{what}");
            let newest = number_of(&newest.path.expect(&what));
            let latest = root.join("latest");
            let latest = latest.exists().then(|| number_of(&latest));
            check(&After { whole, newest, latest, done, what });
        }
        if done {
            assert!(at > 2, "there are some operations");
            return;
        }
    }
}

#[test]
fn a_new_checkpoint_is_there_once_its_save_has_ended_and_the_others_stay() {
    let act = |disk: &dyn Disk, root: &Path| save(disk, &root.join("deep/er/b"), 3);
    at_every_operation(true, &act, &|After { whole, newest, latest, done, what }| {
        assert!(*whole == [1, 2, 3] || !done && *whole == [1, 2], "{what}: {whole:?}");
        assert_eq!((newest, latest), (whole.last().unwrap(), &Some(2)), "{what}");
    });
}

#[test]
fn a_replaced_checkpoint_is_the_old_or_the_new_one() {
    for exchanges in [true, false] {
        let act = |disk: &dyn Disk, root: &Path| save(disk, &root.join("a"), 3);
        at_every_operation(exchanges, &act, &|After { whole, newest, latest, done, what }| {
            assert!(*whole == [1, 3] || !done && *whole == [1, 2], "{what}: {whole:?}");
            assert_eq!((newest, latest), (whole.last().unwrap(), &whole.last().copied()), "{what}");
        });
    }
}

#[test]
fn a_removed_checkpoint_is_whole_or_gone() {
    let act = |disk: &dyn Disk, root: &Path| remove(disk, &root.join("older"));
    at_every_operation(true, &act, &|After { whole, newest, latest, done, what }| {
        assert!(*whole == [2] || !done && *whole == [1, 2], "{what}: {whole:?}");
        assert_eq!((*newest, *latest), (2, Some(2)), "{what}");
    });
}

#[test]
fn a_link_leads_to_the_old_or_the_new_one() {
    let act = |disk: &dyn Disk, root: &Path| point(disk, &root.join("latest"), &root.join("older"));
    at_every_operation(true, &act, &|After { whole, newest, latest, done, what }| {
        assert_eq!((&whole[..], *newest), (&[1, 2][..], 2), "{what}");
        assert!(*latest == Some(1) || !done && *latest == Some(2), "{what}: {latest:?}");
    });
}

/// As a save is carried out: the checkpoint, then `latest` and `last`, then those that it replaces.
#[test]
fn a_whole_save_never_leaves_fewer_checkpoints_than_before() {
    for exchanges in [true, false] {
        let act = |disk: &dyn Disk, root: &Path| {
            save(disk, &root.join("b"), 3)?;
            point(disk, &root.join("latest"), &root.join("b"))?;
            point(disk, &root.join("last"), &root.join("b"))?;
            remove(disk, &root.join("older"))?;
            remove(disk, &root.join("a"))
        };
        at_every_operation(exchanges, &act, &|After { whole, newest, latest, done, what }| {
            assert!(whole.len() >= 2 || *whole == [3], "{what}: {whole:?}");
            assert!(!done || *whole == [3], "{what}: {whole:?}");
            assert_eq!(newest, whole.last().unwrap(), "{what}");
            assert!(latest.is_some_and(|latest| whole.contains(&latest)), "{what}: {latest:?}");
        });
    }
}
