use std::time::Duration;

use tenterhook_core::TimeSpan;

use crate::integration::upload::destination::{Cloud, Destination, RequestLimits};
use crate::integration::upload::options::UploadOptions;

const LIMITS: RequestLimits = RequestLimits { timeout: Duration::from_secs(1), retries: 0 };

fn refusal(to: &str) -> String {
    Destination::parse(to).expect_err(to).to_string()
}

#[test]
fn a_destination_is_a_bucket_or_a_directory() {
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
fn an_invalid_destination_is_refused_with_a_valid_one() {
    for (to, part) in [
        ("", "is empty"),
        ("s3://", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("s3://bucket/x//y", "has an empty part"),
        ("s3://bucket/../x", "\"..\""),
        ("ftp://host/x", "the scheme `ftp` is not supported"),
        ("file://else/where", "is not a directory of this machine"),
        ("https://bucket.s3.amazonaws.com/x", "AWS_ENDPOINT_URL"),
    ] {
        let error = refusal(to);
        assert!(error.starts_with("`to` ") && error.contains(part), "{to}: {error}");
        assert!(error.contains("\"s3://bucket/checkpoints\""), "{to}: {error}");
    }
    for to in
        ["s3://me:hush@bucket/x", "s3://bucket/x?signature=hush", "https://bucket.host/x?signature=hush"]
    {
        let error = refusal(to);
        assert!(error.contains("AWS_SECRET_ACCESS_KEY") && !error.contains("hush"), "{error}");
    }
    #[cfg(not(feature = "gcp"))]
    assert!(refusal("gs://bucket").contains("`--features gcp`"));
    #[cfg(not(feature = "azure"))]
    assert!(refusal("az://container").contains("`--features azure`"));
}

#[test]
fn a_server_without_encryption_must_be_allowed_unless_it_is_this_machine() {
    let bucket = Destination::parse("s3://bucket").expect("a place");
    let outside = tenterhook_core::RunInfo::default().effect_permit().expect("it is no dry run");
    let open = |variables: &[(&str, &str)]| {
        let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let keys = [("AWS_ACCESS_KEY_ID", "me"), ("AWS_SECRET_ACCESS_KEY", "hush")];
        bucket.open(outside, LIMITS, &keys.iter().chain(variables).map(text).collect()).map(drop)
    };
    for here in ["http://127.0.0.1:9000", "http://localhost:9000", "http://[::1]:9000", "https://elsewhere"] {
        assert_eq!(open(&[("AWS_ENDPOINT_URL", here)]), Ok(()), "{here}");
    }
    let elsewhere = ("AWS_ENDPOINT_URL", "http://elsewhere:9000");
    let error = open(&[elsewhere]).expect_err("it is not encrypted");
    assert!(error.contains("AWS_ALLOW_HTTP=true"), "{error}");
    assert_eq!(open(&[elsewhere, ("AWS_ALLOW_HTTP", "true")]), Ok(()));
}

/// The reason why uploads to `to` cannot work with these variables.
fn lack(to: &str, variables: &[(&str, &str)]) -> Option<String> {
    let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let destination = Destination::parse(to).expect("a place");
    let lack = destination.lack(&variables.iter().map(text).collect())?;
    assert_eq!(lack.key, "to");
    Some(format!("{}; {}", lack.problem, lack.fix))
}

#[test]
fn half_of_the_credentials_and_invalid_buckets_or_servers_are_found_without_a_request() {
    let lacks = |to: &str, variables: &[(&str, &str)]| lack(to, variables).expect(to);
    let error = lacks("s3://bucket", &[("AWS_SECRET_ACCESS_KEY", "hush")]);
    assert_eq!(error, "AWS_SECRET_ACCESS_KEY is set and AWS_ACCESS_KEY_ID is not; set it in the environment");
    let error = lacks("s3://bucket", &[("AWS_ACCESS_KEY_ID", "me"), ("AWS_SECRET_ACCESS_KEY", "")]);
    assert!(error.starts_with("AWS_ACCESS_KEY_ID is set and"), "{error}");
    let error = lacks("s3://bucket", &[("AWS_ENDPOINT_URL", "http://elsewhere:9000")]);
    assert!(error.contains("AWS_ALLOW_HTTP=true"), "{error}");
    for bucket in ["s3://ab", "s3://my bucket", "s3://b\u{fc}cket"] {
        assert!(lacks(bucket, &[]).contains("is not the name of a bucket"), "{bucket}");
    }
    for bucket in ["s3://my-bucket.1/a/b", "s3://Old_Bucket"] {
        assert_eq!(lack(bucket, &[]), None, "{bucket}: the machine may have a role");
    }
}

#[test]
fn an_unwritable_directory_is_found_without_creating_anything() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    std::fs::write(root.join("file"), "").expect("it is written");
    let below = |name: &str| root.join(name).to_str().expect("it is text").to_owned();
    assert_eq!(lack(&below("new/deep"), &[]), None);
    assert!(!root.join("new").exists());
    let error = lack(&below("file/deep"), &[]).expect("a file is in the way");
    assert!(error.contains("is not a directory") || error.contains("Not a directory"), "{error}");
    assert!(error.ends_with("; make it writable, or choose another `to`"), "{error}");
    let closed = root.join("closed");
    std::fs::create_dir(&closed).expect("it is made");
    std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o555))
        .expect("it is ours");
    // Root ignores permissions.
    if !rustix::process::geteuid().is_root() {
        let error = lack(&below("closed/new"), &[]).expect("it is closed");
        assert!(error.contains("closed cannot be written to"), "{error}");
    }
}

#[test]
fn invalid_times_and_sizes_are_refused_by_key() {
    let refused = |change: fn(&mut UploadOptions)| {
        let mut options = UploadOptions::new("backup");
        change(&mut options);
        options.checked().expect_err("it is refused").to_string()
    };
    assert!(refused(|options| options.timeout = TimeSpan::default()).starts_with("`timeout` "));
    assert!(refused(|options| options.flush_timeout = TimeSpan::default()).starts_with("`flush_timeout` "));
    assert!(refused(|options| options.queue_size = 0).starts_with("`queue_size` "));
    UploadOptions::new("backup").checked().expect("the others are fine");
}
