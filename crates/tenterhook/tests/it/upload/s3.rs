//! Uploads to a real S3 server, directly or through a faulty proxy.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::job::{Ended, ID, Job};
use super::server::{Bucket, Fate, Moto, Proxy};
use super::{assert_same, files, whole};

struct Place {
    root: tempfile::TempDir,
    bucket: Bucket,
    job: Job,
}

impl Place {
    fn new(moto: &Moto, options: &str) -> Place {
        let (root, bucket) = (tempfile::tempdir().unwrap(), moto.bucket());
        let mut job =
            Job::new(root.path(), Some(format!("to = \"s3://{}/some/where\"\n{options}", bucket.name)));
        job.checkpoint = "save_top_k = -1".into();
        Place { root, bucket, job }
    }

    fn train(&self, port: u16) -> Ended {
        self.job.run_with(&[("AWS_ENDPOINT_URL", &format!("http://127.0.0.1:{port}"))])
    }

    /// The objects in the bucket, by their path below the run.
    fn there(&self) -> BTreeMap<String, Vec<u8>> {
        let below = format!("some/where/{ID}/");
        let name = |key: &str| key.strip_prefix(&below).expect("nothing is elsewhere").to_owned();
        self.bucket.keys().iter().map(|key| (name(key), self.bucket.get(key))).collect()
    }

    fn has_everything(&self) {
        let here = files(&self.job.checkpoints());
        assert_eq!(whole(&here).len(), 3);
        assert_same(&self.there(), &here);
    }

    fn trained_as_without(&self, ended: &Ended) {
        let other = tempfile::tempdir().unwrap();
        let without = Job { epochs: self.job.epochs, ..Job::new(other.path(), None) }.run();
        assert_eq!((&ended.bits, &ended.how), (&without.bits, &without.how));
        let waited = ended.sink().waited;
        assert!(waited.is_zero(), "training waited for {waited:?}");
        assert!(self.root.path().join("runs").exists());
    }
}

#[test]
fn every_checkpoint_arrives_byte_for_byte_and_its_manifest_last() {
    let Some(moto) = Moto::shared() else { return };
    let place = Place::new(moto, "");
    let proxy = Proxy::start(moto.port, |_| Fate::Pass);
    let ended = place.train(proxy.port);
    place.has_everything();
    place.trained_as_without(&ended);
    assert_eq!((ended.sink().sent, ended.sink().delivered), (3, 3), "{}", ended.said());
    let passed = proxy.passed();
    let puts: Vec<_> = passed.iter().filter_map(|what| what.strip_prefix("PUT ")).collect();
    let checkpoint = |path: &str| path.rsplit_once('/').unwrap().0.to_owned();
    for (index, put) in puts.iter().enumerate() {
        let later = puts[index + 1..].iter().any(|other| checkpoint(other) == checkpoint(put));
        assert_eq!(later, !put.ends_with("/manifest.json"), "{puts:#?}");
    }
}

#[test]
fn an_encrypted_server_is_trusted_only_by_its_certificate() {
    let Some(moto) = Moto::shared() else { return };
    let endpoint = format!("https://localhost:{}", moto.tls_port);
    let place = Place::new(moto, "retries = 0");
    let ended = place.job.run_with(&[("AWS_ENDPOINT_URL", &endpoint)]);
    assert!(ended.said().contains("the storage cannot be reached"), "{}", ended.said());
    assert_eq!(place.bucket.keys(), Vec::<String>::new());

    let place = Place::new(moto, "retries = 0");
    let known = place.root.path().join("known.pem");
    std::fs::write(&known, &moto.certificate).unwrap();
    let known = [("AWS_ENDPOINT_URL", &*endpoint), ("SSL_CERT_FILE", known.to_str().unwrap())];
    let ended = place.job.run_with(&known);
    assert_eq!((ended.sink().delivered, ended.sink().failed), (3, 0), "{}", ended.said());
    place.has_everything();
}

#[test]
fn occasional_failures_are_retried() {
    let Some(moto) = Moto::shared() else { return };
    for fate in [Fate::Answer(500), Fate::Answer(503), Fate::Reset, Fate::Dribble] {
        let place = Place::new(moto, "retries = 3");
        let number = AtomicU32::new(0);
        let proxy = Proxy::start(moto.port, move |_| {
            if number.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) { fate } else { Fate::Pass }
        });
        let ended = place.train(proxy.port);
        place.has_everything();
        place.trained_as_without(&ended);
        assert_eq!(ended.sink().failed, 0, "{fate:?}: {}", ended.said());
    }
}

#[test]
fn a_request_that_is_never_answered_times_out_and_is_retried() {
    let Some(moto) = Moto::shared() else { return };
    let place = Place::new(moto, "retries = 1\ntimeout = \"1 s\"");
    let mut hung = false;
    let proxy = Proxy::start(moto.port, move |what| {
        let hangs = !hung && what.ends_with("/weights.safetensors");
        hung |= hangs;
        if hangs { Fate::Hang } else { Fate::Pass }
    });
    let ended = place.train(proxy.port);
    place.has_everything();
    place.trained_as_without(&ended);
}

#[test]
fn a_server_that_always_fails_is_reported_and_no_incomplete_upload_has_a_manifest() {
    let Some(moto) = Moto::shared() else { return };
    for (fate, words) in [
        (Fate::Answer(500), "the storage answered 500, 2 times"),
        (Fate::Reset, "the connection broke, 2 times"),
        (Fate::Hang, "the storage did not answer within 1s, 2 times"),
    ] {
        let place = Place::new(moto, "retries = 1\ntimeout = \"1 s\"");
        let proxy =
            Proxy::start(
                moto.port,
                move |what| {
                    if what.contains("weights.safetensors") { fate } else { Fate::Pass }
                },
            );
        let ended = place.train(proxy.port);
        let there = place.there();
        assert!(!there.is_empty(), "some files came before");
        assert_eq!(whole(&there), Vec::<&str>::new(), "{fate:?}");
        assert_eq!((ended.sink().delivered, ended.sink().failed), (0, 3), "{fate:?}");
        let said = ended.said();
        assert!(said.contains("cannot upload checkpoint epoch=0-step=2 to s3://"), "{said}");
        assert!(said.contains(words), "{fate:?}: {said}");
        place.trained_as_without(&ended);
    }
}

#[test]
fn a_failed_upload_of_the_manifest_leaves_no_manifest() {
    let Some(moto) = Moto::shared() else { return };
    let place = Place::new(moto, "retries = 0");
    let proxy = Proxy::start(moto.port, |what| {
        let of_manifest = what.starts_with("PUT") && what.ends_with("/manifest.json");
        if of_manifest { Fate::Answer(500) } else { Fate::Pass }
    });
    let ended = place.train(proxy.port);
    let mut here = files(&place.job.checkpoints());
    here.retain(|file, _| !file.ends_with("/manifest.json"));
    assert_same(&place.there(), &here);
    assert_eq!(ended.sink().failed, 3);
}

#[test]
fn without_a_server_training_continues_and_the_failure_names_a_fix() {
    let Some(moto) = Moto::shared() else { return };
    let place = Place::new(moto, "retries = 1");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ended = place.train(closed);
    place.trained_as_without(&ended);
    let said = ended.said();
    assert!(said.contains("the storage cannot be reached, tried 2 times"), "{said}");
    assert!(said.contains("check AWS_ENDPOINT_URL"), "{said}");
    assert_eq!((ended.sink().delivered, ended.sink().failed), (0, 3));

    // The resumed run uploads the missing checkpoints and the new ones.
    let again = Place { job: Job { resume: true, epochs: 4, ..place.job.clone() }, ..place };
    again.train(moto.port);
    let here = files(&again.job.checkpoints());
    assert_eq!(whole(&here).len(), 4);
    assert_same(&again.there(), &here);
}

#[test]
fn a_missing_bucket_is_reported_with_a_fix() {
    let Some(moto) = Moto::shared() else { return };
    let mut place = Place::new(moto, "");
    place.job.hook = Some("to = \"s3://nowhere\"".into());
    let ended = place.train(moto.port);
    let said = ended.said();
    assert!(said.contains("404 (NoSuchBucket); create the bucket, or correct `to`"), "{said}");
    place.trained_as_without(&ended);
}

#[test]
fn refused_credentials_are_reported_and_not_shown() {
    // Only the first request is allowed, which creates the bucket.
    let Some(moto) = Moto::start(&[("INITIAL_NO_AUTH_ACTION_COUNT", "1")]) else { return };
    let place = Place::new(&moto, "");
    let ended = place.train(moto.port);
    let said = ended.said();
    assert!(said.contains("the storage refused it with 403 ("), "{said}");
    assert!(said.contains("check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"), "{said}");
    assert_eq!(ended.sink().failed, 3);
    place.trained_as_without(&ended);
}

#[test]
fn a_destination_that_cannot_work_is_reported_without_any_checkpoint() {
    type Case<'a> = (Place, u16, &'a [(&'a str, &'a str)], &'a str);

    let (Some(moto), Some(strict)) = (Moto::shared(), Moto::start(&[("INITIAL_NO_AUTH_ACTION_COUNT", "1")]))
    else {
        return;
    };
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let metadata = format!("http://127.0.0.1:{closed}");
    let none = [
        ("AWS_ACCESS_KEY_ID", ""),
        ("AWS_SECRET_ACCESS_KEY", ""),
        ("AWS_SESSION_TOKEN", ""),
        ("AWS_METADATA_ENDPOINT", &*metadata),
    ];
    let mut nowhere = Place::new(moto, "");
    nowhere.job.hook = Some("to = \"s3://nowhere/some/where\"".into());
    let cases: [Case<'_>; 4] = [
        (nowhere, moto.port, &[], "404 (NoSuchBucket); create the bucket, or correct `to`"),
        (Place::new(&strict, ""), strict.port, &[], "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"),
        (Place::new(moto, ""), moto.port, &none, "there are no credentials; set AWS_ACCESS_KEY_ID"),
        (Place::new(moto, ""), closed, &[], "the storage cannot be reached"),
    ];
    for (mut place, port, variables, text) in cases {
        place.job.checkpoint = "save_top_k = 0".into();
        let endpoint = format!("http://127.0.0.1:{port}");
        let variables: Vec<_> =
            [("AWS_ENDPOINT_URL", &*endpoint)].into_iter().chain(variables.iter().copied()).collect();
        let ended = place.job.run_with(&variables);
        let said = ended.said();
        assert!(said.contains("cannot upload to s3://") && said.contains(text), "{text}: {said}");
        assert_eq!((ended.sink().sent, ended.sink().failed), (0, 0), "{said}");
        place.trained_as_without(&ended);
    }
}

#[test]
fn a_working_destination_is_checked_once_without_a_notice() {
    let Some(moto) = Moto::shared() else { return };
    let mut place = Place::new(moto, "");
    place.job.checkpoint = "save_top_k = 0".into();
    let proxy = Proxy::start(moto.port, |_| Fate::Pass);
    let ended = place.train(proxy.port);
    let bucket = &place.bucket.name;
    assert_eq!(proxy.passed(), [format!("GET /{bucket}/some/where/{ID}/manifest.json")]);
    assert!(!ended.said().contains("cannot upload"), "{}", ended.said());
    assert!(place.there().is_empty());
}

#[test]
fn a_server_that_repeats_the_request_does_not_reveal_secrets() {
    let Some(moto) = Moto::shared() else { return };
    let place = Place::new(moto, "");
    let proxy = Proxy::start(moto.port, |_| Fate::Repeat);
    let ended = place.train(proxy.port);
    assert!(ended.said().contains("the storage refused it with 403 (Nope)"), "{}", ended.said());
    place.trained_as_without(&ended);
}

#[test]
fn deliveries_that_time_out_are_lost_and_reported() {
    let Some(moto) = Moto::shared() else { return };
    let place = Place::new(moto, "flush_timeout = \"1 s\"");
    let proxy = Proxy::start(moto.port, |_| Fate::Hang);
    let ended = place.train(proxy.port);
    assert_eq!((ended.sink().lost, ended.sink().delivered), (3, 0));
    assert!(ended.said().contains("3 of 3 were lost"), "{}", ended.said());
    assert!(ended.sink().flushed < Duration::from_secs(30), "{:?}", ended.sink().flushed);
    place.trained_as_without(&ended);
}

#[test]
fn a_large_file_goes_in_parts_of_which_one_may_be_repeated() {
    let Some(moto) = Moto::shared() else { return };
    let mut place = Place::new(moto, "retries = 2");
    (place.job.epochs, place.job.ballast) = (1, 20 << 20);
    let number = AtomicU32::new(0);
    let proxy = Proxy::start(moto.port, move |what| {
        let fails = what.contains("partNumber=2") && number.fetch_add(1, Ordering::Relaxed) == 0;
        if fails { Fate::Answer(500) } else { Fate::Pass }
    });
    let ended = place.train(proxy.port);
    assert_eq!((ended.sink().delivered, ended.sink().failed), (1, 0), "{}", ended.said());
    assert_same(&place.there(), &files(&place.job.checkpoints()));
    let parts = proxy.passed().iter().filter(|what| what.contains("partNumber=")).count();
    assert_eq!(parts, 3);
}

#[test]
fn an_aborted_upload_leaves_no_parts() {
    let Some(moto) = Moto::shared() else { return };
    let mut place = Place::new(moto, "retries = 0");
    (place.job.epochs, place.job.ballast) = (1, 20 << 20);
    let proxy =
        Proxy::start(
            moto.port,
            |what| {
                if what.contains("partNumber=2") { Fate::Answer(500) } else { Fate::Pass }
            },
        );
    let ended = place.train(proxy.port);
    assert_eq!((ended.sink().delivered, ended.sink().failed), (0, 1), "{}", ended.said());
    assert!(
        !place.there().keys().any(|file| file.ends_with("/state.json") || file.ends_with("/manifest.json"))
    );
    assert!(proxy.passed().iter().any(|what| what.starts_with("DELETE ") && what.contains("uploadId=")));
}
