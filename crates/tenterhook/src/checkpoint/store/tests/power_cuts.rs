//! Power cuts at every disk operation: writes that were not synced are lost, but no whole checkpoint.

use super::power::{Persisted, PowerCut};
use super::*;

type Act<'a> = &'a dyn Fn(&dyn Disk, &Path) -> Result<(), BoxError>;

/// The state after a power cut and clean-up.
struct After {
    whole: Vec<u64>,
    newest: u64,
    latest: Option<u64>,
    /// The content of the run's file [`jobs::MARKED`].
    marked: Option<String>,
    /// Whether the action was complete.
    done: bool,
    /// A description for messages.
    what: String,
}

/// Two durable checkpoints; `latest` links to the newer one.
fn two_checkpoints(root: &Path, exchanges: bool) -> PowerCut {
    std::fs::create_dir(root).unwrap();
    let disk = PowerCut::new(root, exchanges);
    save(&disk, &root.join("older"), 1).unwrap();
    save(&disk, &root.join("a"), 2).unwrap();
    set_link(&disk, &root.join("latest"), &root.join("a")).unwrap();
    disk.settle();
    disk
}

/// Checks the state after a power cut, for all kinds of unsynced changes that the disk may have written.
fn after(disk: &PowerCut, what: &str, check: &dyn Fn(&After)) {
    for persisted in Persisted::ALL {
        let what = format!("{what}, persisted {persisted:?}");
        let left = tempfile::tempdir().unwrap();
        let root = left.path();
        disk.restore(root, persisted);
        clean_up(&RealDisk, root).expect(&what);
        let listed = list(root).expect(&what);
        let damaged: Vec<_> = listed.iter().filter(|listed| listed.integrity != Integrity::Whole).collect();
        assert!(damaged.is_empty(), "{what}: {damaged:?}");
        assert!(names(root).iter().all(|name| !name.starts_with('.')), "{what}: {:?}", names(root));
        let mut whole: Vec<_> = listed.iter().map(|listed| number_of(&listed.path)).collect();
        whole.sort_unstable();
        let newest = newest_whole(root, OnUnreadable::Stop).expect(&what);
        assert_eq!(newest.skipped, [], "{what}");
        let newest = number_of(&newest.path.expect(&what));
        let latest = root.join("latest");
        let latest = latest.exists().then(|| number_of(&latest));
        let marked = std::fs::read_to_string(root.join(jobs::MARKED.0)).ok();
        check(&After { whole, newest, latest, marked, done: !disk.has_ended(), what });
    }
}

/// Runs an action on two checkpoints with a power cut at every disk operation in turn, and finally after all of them.
fn at_every_operation(exchanges: bool, act: Act<'_>, check: &dyn Fn(&After)) {
    for at in 0.. {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("checkpoints");
        let disk = two_checkpoints(&root, exchanges);
        disk.end_at(at);
        let acted = act(&disk, &root);
        let done = !disk.has_ended();
        assert!(!done || acted.is_ok(), "nothing was in the way: {acted:?}");
        after(&disk, &format!("cut at {at}"), check);
        if done {
            assert!(at > 2, "there are some operations");
            return;
        }
    }
}

#[test]
fn a_new_checkpoint_is_durable_after_its_save_and_the_others_are_kept() {
    let act = |disk: &dyn Disk, root: &Path| save(disk, &root.join("deep/er/b"), 3);
    at_every_operation(true, &act, &|After { whole, newest, latest, done, what, .. }| {
        assert!(*whole == [1, 2, 3] || !done && *whole == [1, 2], "{what}: {whole:?}");
        assert_eq!((newest, latest), (whole.last().unwrap(), &Some(2)), "{what}");
    });
}

#[test]
fn a_replaced_checkpoint_is_the_old_or_the_new_one() {
    for exchanges in [true, false] {
        let act = |disk: &dyn Disk, root: &Path| save(disk, &root.join("a"), 3);
        at_every_operation(exchanges, &act, &|After { whole, newest, latest, done, what, .. }| {
            assert!(*whole == [1, 3] || !done && *whole == [1, 2], "{what}: {whole:?}");
            assert_eq!((newest, latest), (whole.last().unwrap(), &whole.last().copied()), "{what}");
        });
    }
}

#[test]
fn a_removed_checkpoint_is_whole_or_gone() {
    let act = |disk: &dyn Disk, root: &Path| remove(disk, &root.join("older"));
    at_every_operation(true, &act, &|After { whole, newest, latest, done, what, .. }| {
        assert!(*whole == [2] || !done && *whole == [1, 2], "{what}: {whole:?}");
        assert_eq!((*newest, *latest), (2, Some(2)), "{what}");
    });
}

#[test]
fn a_link_leads_to_the_old_or_the_new_one() {
    let act = |disk: &dyn Disk, root: &Path| set_link(disk, &root.join("latest"), &root.join("older"));
    at_every_operation(true, &act, &|After { whole, newest, latest, done, what, .. }| {
        assert_eq!((&whole[..], *newest), (&[1, 2][..], 2), "{what}");
        assert!(*latest == Some(1) || !done && *latest == Some(2), "{what}: {latest:?}");
    });
}

/// What must hold at every instant of a save and of the resume that completes it.
fn nothing_is_lost(After { whole, newest, latest, marked, what, .. }: &After) {
    assert!(*whole == [3] || whole.starts_with(&[1, 2]) || *whole == [2, 3], "{what}: {whole:?}");
    assert_eq!(newest, whole.last().unwrap(), "{what}");
    assert!(latest.is_some_and(|latest| whole.contains(&latest)), "{what}: {latest:?}");
    let line = marked.as_deref() == Some(jobs::MARKED.1);
    assert!(line || !whole.contains(&3), "{what}: the checkpoint outlives the lines that it file_positions");
}

#[test]
fn a_save_never_leaves_fewer_checkpoints_than_before() {
    for exchanges in [true, false] {
        at_every_operation(exchanges, &jobs::carry_out, &|after| {
            nothing_is_lost(after);
            assert!(!after.done || (&after.whole[..], after.latest) == (&[3], Some(3)), "{}", after.what);
        });
    }
}

#[test]
fn a_resume_that_finishes_a_killed_save_loses_nothing_by_a_power_cut() {
    for killed_at in 0.. {
        for cut_at in 0.. {
            let place = tempfile::tempdir().unwrap();
            let root = place.path().join("checkpoints");
            let disk = two_checkpoints(&root, true);
            disk.end_at(killed_at);
            let saved = jobs::carry_out(&disk, &root);
            if saved.is_ok() {
                assert!(killed_at > 20, "there are some operations");
                return;
            }
            // The disk still has the unsynced changes of the killed process. Without its checkpoint, there is
            // no pending work.
            let pending_post_save = root.join(jobs::SAVED.0).exists();
            disk.end_at(if pending_post_save { cut_at } else { usize::MAX });
            let resumed = jobs::resume(&disk, &root);
            let done = !disk.has_ended();
            assert!(!done || resumed.is_ok(), "nothing was in the way: {resumed:?}");
            after(&disk, &format!("killed at {killed_at}, cut at {cut_at}"), &|after| {
                nothing_is_lost(after);
                let finished = after.whole == [3] || after.whole == [1, 2];
                assert!(!done || finished && after.latest == Some(after.newest), "{}", after.what);
            });
            if done {
                break;
            }
        }
    }
}
