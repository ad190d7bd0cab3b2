//! Failures and kills at every disk operation.

use super::faulty::{EIO, ENOSPC, Fault, Faulty};
use super::*;

const ERRORS: [Fault; 4] =
    [Fault::Fails(EIO), Fault::Fails(ENOSPC), Fault::FailsHalfway(EIO), Fault::FailsHalfway(ENOSPC)];

/// Checks a directory and the result of an action in it; the text describes the fault.
type Check<'a> = dyn Fn(&Path, Result<(), String>, &str) + 'a;

/// Runs an action with a fault at every disk operation in turn. `prepare` fills a new directory each time;
/// `check` receives the result.
fn at_every_operation(
    fault: Fault,
    exchanges: bool,
    prepare: &dyn Fn(&Path),
    act: &dyn Fn(&dyn Disk, &Path) -> Result<(), BoxError>,
    check: &Check<'_>,
) {
    for at in 0.. {
        let root = tempfile::tempdir().unwrap();
        prepare(root.path());
        let disk = Faulty::new(at, fault);
        let disk = if exchanges { disk } else { disk.without_exchange() };
        let done = act(&disk, root.path()).map_err(|error| error.to_string());
        if !disk.has_failed() {
            assert!(at > 2, "there are some");
            return done.expect("nothing was in the way");
        }
        check(root.path(), done, &format!("{fault:?} at {at} of {:?}", disk.asked()));
    }
}

fn one_older(root: &Path) {
    save(&Faulty::never(), &root.join("older"), 1).unwrap();
}

fn one_of_the_same_name(root: &Path) {
    one_older(root);
    save(&Faulty::never(), &root.join("a"), 2).unwrap();
}

#[test]
fn a_failed_save_is_an_error_keeps_older_checkpoints_and_can_be_retried() {
    for (fault, exchanges, before) in ERRORS
        .iter()
        .flat_map(|fault| [(*fault, true, None), (*fault, true, Some(2)), (*fault, false, Some(2))])
    {
        let prepare = if before.is_some() { one_of_the_same_name } else { one_older };
        let act = |disk: &dyn Disk, root: &Path| save(disk, &root.join("a"), 3);
        at_every_operation(fault, exchanges, &prepare, &act, &|root, done, what| {
            let path = root.join("a");
            assert_eq!(number_of(&root.join("older")), 1, "{what}");
            match done {
                // Only the removal of the replaced checkpoint failed.
                Ok(()) => assert_eq!(number_of(&path), 3, "{what}"),
                Err(error) => {
                    let fix = if format!("{fault:?}").contains("28") {
                        "; make room there"
                    } else {
                        "; check that disk"
                    };
                    assert!(error.starts_with("cannot write checkpoint "), "{what}: {error}");
                    assert!(error.contains(fix) && error.contains("/a"), "{what}: {error}");
                    let left = if path.exists() { Some(number_of(&path)) } else { None };
                    assert_eq!(left, before, "{what}");
                }
            }
            save(&Faulty::never(), &path, 4).expect(what);
            assert_eq!(number_of(&path), 4, "{what}");
            clean_up(&Faulty::never(), root).expect(what);
            assert_eq!(names(root), ["a", "older"], "{what}");
        });
    }
}

#[test]
fn a_process_killed_in_a_save_leaves_the_old_or_the_new_checkpoint_and_no_leftovers_after_clean_up() {
    for (exchanges, before) in [(true, None), (true, Some(2)), (false, Some(2))] {
        let prepare = if before.is_some() { one_of_the_same_name } else { one_older };
        let act = |disk: &dyn Disk, root: &Path| save(disk, &root.join("a"), 3);
        at_every_operation(Fault::Dies, exchanges, &prepare, &act, &|root, done, what| {
            let path = root.join("a");
            if exchanges && let Some(before) = before {
                assert!([before, 3].contains(&number_of(&path)), "{what}: at every instant one has the name");
            }
            clean_up(&Faulty::never(), root).expect(what);
            let left = if path.exists() { Some(number_of(&path)) } else { None };
            match done {
                Ok(()) => assert_eq!(left, Some(3), "{what}"),
                Err(_) => assert!(left == before || left == Some(3), "{what}: {left:?}"),
            }
            let expected: &[_] = if left.is_some() { &["a", "older"] } else { &["older"] };
            assert_eq!(names(root), expected, "{what}");
            assert!(list(root).unwrap().iter().all(|listed| listed.integrity == Integrity::Whole), "{what}");
            let newest = if left.is_some() { "a" } else { "older" };
            assert_eq!(
                newest_whole(root, OnUnreadable::Stop).unwrap().path,
                Some(root.join(newest)),
                "{what}"
            );
        });
    }
}

#[test]
fn a_removal_that_fails_or_is_killed_leaves_no_half_checkpoint() {
    for fault in ERRORS.into_iter().chain([Fault::Dies]) {
        let act = |disk: &dyn Disk, root: &Path| remove(disk, &root.join("a"));
        at_every_operation(fault, true, &one_of_the_same_name, &act, &|root, done, what| {
            let error = done.expect_err(what);
            assert!(error.starts_with("cannot remove checkpoint "), "{error}");
            let path = root.join("a");
            assert!(!path.exists() || number_of(&path) == 2, "{what}");
            assert!(list(root).unwrap().iter().all(|listed| listed.integrity == Integrity::Whole), "{what}");
            if fault == Fault::Dies {
                clean_up(&Faulty::never(), root).expect(what);
            } else {
                remove(&Faulty::never(), &path).expect(what);
                assert_eq!(names(root), ["older"], "{what}: tried again");
            }
            assert!(names(root).iter().all(|name| !name.starts_with('.')), "{what}");
            assert_eq!(number_of(&root.join("older")), 1, "{what}");
        });
    }
}

#[test]
fn a_link_leads_to_a_whole_checkpoint_even_if_setting_it_fails_or_is_killed() {
    for fault in ERRORS.into_iter().chain([Fault::Dies]) {
        let prepare = |root: &Path| {
            one_of_the_same_name(root);
            set_link(&Faulty::never(), &root.join("latest"), &root.join("older")).unwrap();
        };
        let act = |disk: &dyn Disk, root: &Path| set_link(disk, &root.join("latest"), &root.join("a"));
        at_every_operation(fault, true, &prepare, &act, &|root, done, what| {
            assert!(done.expect_err(what).starts_with("cannot link checkpoint "), "{what}");
            assert!([1, 2].contains(&number_of(&root.join("latest"))), "{what}");
            clean_up(&Faulty::never(), root).expect(what);
            assert_eq!(names(root), ["a", "latest", "older"], "{what}");
            set_link(&Faulty::never(), &root.join("latest"), &root.join("a")).expect(what);
            assert_eq!(number_of(&root.join("latest")), 2, "{what}");
        });
    }
}

#[test]
fn a_process_killed_in_a_clean_up_does_not_affect_the_next_one() {
    for fault in ERRORS.into_iter().chain([Fault::Dies]) {
        let prepare = |root: &Path| {
            one_of_the_same_name(root);
            save(&Faulty::never(), &root.join("b"), 3).unwrap();
            save(&Faulty::never(), &root.join("y"), 4).unwrap();
            for (whole, left) in [("a", ".a.replaced"), ("b", ".x.removed"), ("older", ".y.unfinished")] {
                std::fs::rename(root.join(whole), root.join(left)).unwrap();
            }
        };
        let act = |disk: &dyn Disk, root: &Path| clean_up(disk, root);
        at_every_operation(fault, true, &prepare, &act, &|root, done, what| {
            assert!(done.expect_err(what).starts_with("cannot clean up the checkpoints in "));
            clean_up(&Faulty::never(), root).expect(what);
            assert_eq!(names(root), ["a", "y"], "{what}");
            assert_eq!((number_of(&root.join("a")), number_of(&root.join("y"))), (2, 4), "{what}");
        });
    }
}

#[test]
fn a_failed_save_can_be_retried_and_a_killed_one_is_finished_by_a_resume() {
    for (fault, exchanges) in ERRORS.into_iter().map(|fault| (fault, true)).chain([(Fault::Dies, false)]) {
        let prepare = |root: &Path| {
            one_of_the_same_name(root);
            set_link(&Faulty::never(), &root.join("latest"), &root.join("a")).unwrap();
        };
        at_every_operation(fault, exchanges, &prepare, &jobs::carry_out, &|root, done, what| {
            let (name, number) = jobs::SAVED;
            let saved = root.join(name).exists();
            assert!(saved || done.is_err(), "{what}");
            assert!(
                saved || number_of(&root.join("a")) == 2 && number_of(&root.join("older")) == 1,
                "{what}"
            );
            assert!([2, number].contains(&number_of(&root.join("latest"))), "{what}");
            jobs::resume(&Faulty::never(), root).expect(what);
            if !saved {
                jobs::carry_out(&Faulty::never(), root).expect(what);
            }
            assert_eq!(names(root), ["deep", "last", "latest", jobs::MARKED.0], "{what}");
            for link in ["last", "latest"] {
                assert_eq!(number_of(&root.join(link)), number, "{what}");
            }
            assert_eq!(names(&root.join("deep")), ["b"], "{what}");
        });
    }
}
