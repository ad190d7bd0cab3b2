use std::time::Duration;

use crate::upload::destination::{Cloud, Destination, Patience};
use crate::upload::options::UploadOptions;

const PATIENCE: Patience = Patience { timeout: Duration::from_secs(1), retries: 0 };

fn refusal(to: &str) -> String {
    Destination::parse(to).expect_err(to).to_string()
}

#[test]
fn a_place_is_a_bucket_or_a_directory() {
    for (to, directory) in
        [("backup", "backup"), ("/mnt/backup", "/mnt/backup"), ("file:///mnt/my%20backup", "/mnt/my backup")]
    {
        assert_eq!(Destination::parse(to), Ok(Destination::Directory(directory.into())), "{to}");
    }
    for (to, bucket, place) in
        [("s3://bucket", "bucket", ""), ("s3://bucket/", "bucket", ""), ("s3a://b/x/y/", "b", "x/y")]
    {
        let Ok(Destination::Bucket { cloud: Cloud::S3, name, prefix }) = Destination::parse(to) else {
            panic!("{to}")
        };
        assert_eq!((&*name, prefix.as_ref()), (bucket, place), "{to}");
    }
}

#[test]
fn what_is_no_place_is_refused_with_one_that_is() {
    for (to, part) in [
        ("", "is empty"),
        ("s3://", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("s3://bucket/x//y", "has an empty part"),
        ("s3://bucket/../x", "\"..\""),
        ("ftp://host/x", "`ftp` is not known"),
        ("file://else/where", "names no directory here"),
        ("https://bucket.s3.amazonaws.com/x", "AWS_ENDPOINT_URL"),
    ] {
        let error = refusal(to);
        assert!(error.starts_with("`to` ") && error.contains(part), "{to}: {error}");
        assert!(error.contains("\"s3://bucket/checkpoints\""), "{to}: {error}");
    }
    let error = refusal("s3://me:hush@bucket/x");
    assert!(error.contains("AWS_SECRET_ACCESS_KEY") && !error.contains("hush"), "{error}");
    #[cfg(not(feature = "gcp"))]
    assert!(refusal("gs://bucket").contains("`--features gcp`"));
    #[cfg(not(feature = "azure"))]
    assert!(refusal("az://container").contains("`--features azure`"));
}

#[test]
fn a_server_without_encryption_must_be_allowed_unless_it_is_this_machine() {
    let bucket = Destination::parse("s3://bucket").expect("a place");
    let open = |variables: &[(&str, &str)]| {
        let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let keys = [("AWS_ACCESS_KEY_ID", "me"), ("AWS_SECRET_ACCESS_KEY", "hush")];
        bucket.open(PATIENCE, &keys.iter().chain(variables).map(text).collect()).map(drop)
    };
    for here in ["http://127.0.0.1:9000", "http://localhost:9000", "http://[::1]:9000", "https://elsewhere"] {
        assert_eq!(open(&[("AWS_ENDPOINT_URL", here)]), Ok(()), "{here}");
    }
    let elsewhere = ("AWS_ENDPOINT_URL", "http://elsewhere:9000");
    let error = open(&[elsewhere]).expect_err("it is not encrypted");
    assert!(error.contains("AWS_ALLOW_HTTP=true"), "{error}");
    assert_eq!(open(&[elsewhere, ("AWS_ALLOW_HTTP", "true")]), Ok(()));
}

#[test]
fn half_of_the_credentials_are_not_enough() {
    let bucket = Destination::parse("s3://bucket").expect("a place");
    let error = bucket.open(PATIENCE, &vec![("AWS_SECRET_ACCESS_KEY".into(), "hush".into())]);
    let error = error.map(drop).expect_err("half is missing");
    assert!(error.contains("AccessKeyId") && !error.contains("hush"), "{error}");
}

#[test]
fn times_and_sizes_that_cannot_be_are_refused_by_their_key() {
    let refused = |change: fn(&mut UploadOptions)| {
        let mut options = UploadOptions::to("backup");
        change(&mut options);
        options.checked().expect_err("it is refused").to_string()
    };
    assert!(refused(|options| options.timeout = "soon".into()).starts_with("`timeout` "));
    assert!(refused(|options| options.flush_timeout = "0 s".into()).starts_with("`flush_timeout` "));
    assert!(refused(|options| options.queue_size = 0).starts_with("`queue_size` "));
    UploadOptions::to("backup").checked().expect("the others are fine");
}
