//! The destination of uploads: parses `to` and opens the store.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};
use reqwest::Url;
use tenterhook_core::{EffectPermit, EnvironmentProblem, OptionError};

/// Environment variables, read when the worker starts.
pub(super) type Variables = Vec<(String, String)>;

/// The maximum time for all retries of a request: S3 accepts a signature for 15 minutes.
const SIGNATURE_VALID: Duration = Duration::from_mins(14);
/// The maximum time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A parsed `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// A directory, as configured.
    Directory(PathBuf),
    /// A bucket of a cloud and a prefix in it.
    Bucket { cloud: Cloud, name: String, prefix: Key },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cloud {
    S3,
    #[cfg(feature = "gcp")]
    Google,
    #[cfg(feature = "azure")]
    Azure,
}

/// Timeout and retries of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestLimits {
    pub(super) timeout: Duration,
    pub(super) retries: usize,
}

impl Destination {
    /// Parses `to`.
    pub(super) fn parse(to: &str) -> Result<Destination, OptionError> {
        let Some((scheme, rest)) = to.split_once("://") else {
            if to.is_empty() {
                return Err(refused("is empty"));
            }
            return Ok(Destination::Directory(to.into()));
        };
        let names_user = rest.split('/').next().is_some_and(|host| host.contains('@'));
        // The query of an address may contain its signature.
        if names_user || (scheme != "file" && rest.contains('?')) {
            return Err(OptionError::new(
                "to",
                "`to` must not contain credentials: it is stored with the run",
            )
            .fix(
                "put them into environment variables, \
                 such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            ));
        }
        let cloud = match scheme {
            "file" => {
                let path = Url::parse(to).ok().and_then(|url| url.to_file_path().ok());
                let path = path.ok_or_else(|| {
                    refused(&format!("is \"{to}\", which is not a directory of this machine"))
                })?;
                return Ok(Destination::Directory(path));
            }
            "s3" | "s3a" => Cloud::S3,
            #[cfg(feature = "gcp")]
            "gs" => Cloud::Google,
            #[cfg(feature = "azure")]
            "az" => Cloud::Azure,
            #[cfg(not(feature = "gcp"))]
            "gs" => return Err(not_built(to, "gcp")),
            #[cfg(not(feature = "azure"))]
            "az" => return Err(not_built(to, "azure")),
            "http" | "https" => {
                return Err(refused(&format!(
                    "is \"{to}\"; name the bucket, and the server in the environment, as AWS_ENDPOINT_URL"
                )));
            }
            _ => return Err(refused(&format!("is \"{to}\", and the scheme `{scheme}` is not supported"))),
        };
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if name.is_empty() {
            return Err(refused(&format!("is \"{to}\", which names no bucket")));
        }
        let prefix = Key::parse(prefix).map_err(|_| {
            refused(&format!(
                "is \"{to}\", whose path has an empty part, \".\", \"..\" or a control character"
            ))
        })?;
        Ok(Destination::Bucket { cloud, name: name.to_owned(), prefix })
    }

    /// Opens the store; returns it with the prefix of all keys.
    pub(super) fn open(
        &self,
        _: EffectPermit,
        limits: RequestLimits,
        variables: &Variables,
    ) -> Result<(Arc<dyn ObjectStore>, Key), String> {
        match self {
            Destination::Directory(path) => {
                let cannot =
                    |error: &dyn std::fmt::Display| format!("cannot use {}: {error}", path.display());
                fs::create_dir_all(path).map_err(|error| cannot(&error))?;
                let store = LocalFileSystem::new_with_prefix(path).map_err(|error| cannot(&error))?;
                Ok((Arc::new(store.with_fsync(true)), Key::default()))
            }
            Destination::Bucket { cloud, name, prefix } => {
                // TLS needs a crypto provider; one that the program has installed is kept.
                let _ = rustls::crypto::ring::default_provider().install_default();
                let store = match cloud {
                    Cloud::S3 => s3(name, limits, variables)?,
                    #[cfg(feature = "gcp")]
                    Cloud::Google => google(name, limits, variables)?,
                    #[cfg(feature = "azure")]
                    Cloud::Azure => azure(name, limits, variables)?,
                };
                Ok((store, prefix.clone()))
            }
        }
    }

    /// The reason why uploads cannot work, as far as known without requests or changes.
    pub(super) fn lack(&self, variables: &Variables) -> Option<EnvironmentProblem> {
        let (problem, fix) = match self {
            Destination::Directory(path) => (unwritable(path)?, "make it writable, or choose another `to`"),
            Destination::Bucket { cloud: Cloud::S3, name, .. } => {
                let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
                if !(3..=255).contains(&name.len()) || !name.chars().all(fits) {
                    let problem = format!("{name:?} is not the name of a bucket");
                    (problem, "name it with 3 or more letters, digits, `.` and `-`")
                } else {
                    let known = s3_settings(variables).and_then(|builder| check_key_pair(&builder));
                    (known.err()?, "set it in the environment")
                }
            }
            #[cfg(any(feature = "gcp", feature = "azure"))]
            Destination::Bucket { .. } => return None,
        };
        Some(EnvironmentProblem { key: "to", problem, fix: fix.to_owned() })
    }

    /// The directory, if the destination is one.
    pub(super) fn directory(&self) -> Option<&Path> {
        match self {
            Destination::Directory(path) => Some(path),
            Destination::Bucket { .. } => None,
        }
    }
}

fn refused(problem: &str) -> OptionError {
    OptionError::new("to", format!("`to` {problem}"))
        .fix("for example, write \"s3://bucket/checkpoints\" or \"/mnt/backup\"")
}

#[cfg(not(all(feature = "gcp", feature = "azure")))]
fn not_built(to: &str, feature: &str) -> OptionError {
    OptionError::new("to", format!("`to` is \"{to}\", which this program was built without"))
        .fix(format!("build it with `--features {feature}`"))
}

fn retrying(limits: RequestLimits) -> RetryConfig {
    RetryConfig { max_retries: limits.retries, retry_timeout: SIGNATURE_VALID, ..RetryConfig::default() }
}

/// The options of the HTTP clients of stores.
fn client_options(limits: RequestLimits) -> [(ClientConfigKey, String); 2] {
    let text = |time: Duration| format!("{}ms", time.as_millis());
    [
        (ClientConfigKey::Timeout, text(limits.timeout)),
        (ClientConfigKey::ConnectTimeout, text(limits.timeout.min(CONNECT_TIMEOUT))),
    ]
}

/// The reason why a directory cannot be created or written. For a missing directory, checks the nearest existing parent.
fn unwritable(directory: &Path) -> Option<String> {
    use rustix::fs::{Access, access};

    let shown = directory.display();
    let directory = match std::path::absolute(directory) {
        Ok(directory) => directory,
        Err(error) => return Some(format!("{shown} cannot be used: {error}")),
    };
    for above in directory.ancestors() {
        match fs::metadata(above) {
            Ok(found) if !found.is_dir() => return Some(format!("{} is not a directory", above.display())),
            Ok(_) => {
                let refused = access(above, Access::WRITE_OK | Access::EXEC_OK).err()?;
                return Some(format!("{} cannot be written to: {refused}", above.display()));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Some(format!("{} cannot be used: {error}", above.display())),
        }
    }
    None
}

/// Rejects half of a key pair. Without both halves, the machine may have a role, which only a request can show.
fn check_key_pair(builder: &AmazonS3Builder) -> Result<(), String> {
    let keys = [
        (AmazonS3ConfigKey::AccessKeyId, "AWS_ACCESS_KEY_ID"),
        (AmazonS3ConfigKey::SecretAccessKey, "AWS_SECRET_ACCESS_KEY"),
    ];
    let is_set = |key| builder.get_config_value(key).is_some_and(|value| !value.is_empty());
    match keys.each_ref().map(|(key, _)| is_set(key)) {
        [true, false] => Err(format!("{} is set and {} is not", keys[0].1, keys[1].1)),
        [false, true] => Err(format!("{} is set and {} is not", keys[1].1, keys[0].1)),
        _ => Ok(()),
    }
}

/// The S3 settings of the environment.
fn s3_settings(variables: &Variables) -> Result<AmazonS3Builder, String> {
    // Like the builder's `from_env`, but with the given variables.
    let mut builder = AmazonS3Builder::new();
    for (name, value) in variables.iter().filter(|(name, _)| name.starts_with("AWS_")) {
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            builder = builder.with_config(key, value);
        }
    }
    let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
    let endpoint = endpoint.iter().find_map(|key| builder.get_config_value(key));
    let allowed = builder.get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    if let Some(endpoint) = endpoint.filter(|endpoint| endpoint.starts_with("http://")) {
        if is_this_machine(&endpoint) {
            builder = builder.with_allow_http(true);
        } else if allowed.is_none_or(|allowed| allowed != "true") {
            return Err(
                "the endpoint is not encrypted; write https:// in AWS_ENDPOINT_URL, or allow it with \
                        AWS_ALLOW_HTTP=true"
                    .to_owned(),
            );
        }
    }
    Ok(builder)
}

fn s3(bucket: &str, limits: RequestLimits, variables: &Variables) -> Result<Arc<dyn ObjectStore>, String> {
    let mut builder = s3_settings(variables)?;
    for (key, value) in client_options(limits) {
        builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
    }
    let store = builder
        .with_bucket_name(bucket)
        // Not every S3-compatible server supports bulk deletes.
        .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true")
        .with_retry(retrying(limits))
        .build();
    Ok(Arc::new(store.map_err(|error| format!("the environment is not complete: {error}"))?))
}

/// Whether the address is this machine.
fn is_this_machine(url: &str) -> bool {
    let Some(url) = Url::parse(url).ok() else { return false };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// Opens the store of another cloud with the settings of the environment.
#[cfg(any(feature = "gcp", feature = "azure"))]
macro_rules! open_store {
    ($builder:expr, $Key:ident, $prefix:literal, $limits:ident, $variables:ident) => {{
        let mut builder = $builder;
        for (name, value) in $variables.iter().filter(|(name, _)| name.starts_with($prefix)) {
            if let Ok(key) = name.to_ascii_lowercase().parse() {
                builder = builder.with_config(key, value);
            }
        }
        for (key, value) in client_options($limits) {
            builder = builder.with_config($Key::Client(key), value);
        }
        let store = builder.with_retry(retrying($limits)).build();
        Ok(Arc::new(store.map_err(|error| format!("the environment is not complete: {error}"))?))
    }};
}

#[cfg(feature = "gcp")]
fn google(
    bucket: &str,
    limits: RequestLimits,
    variables: &Variables,
) -> Result<Arc<dyn ObjectStore>, String> {
    use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};

    let builder = GoogleCloudStorageBuilder::new().with_bucket_name(bucket);
    open_store!(builder, GoogleConfigKey, "GOOGLE_", limits, variables)
}

#[cfg(feature = "azure")]
fn azure(
    container: &str,
    limits: RequestLimits,
    variables: &Variables,
) -> Result<Arc<dyn ObjectStore>, String> {
    use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

    let builder = MicrosoftAzureBuilder::new().with_container_name(container);
    open_store!(builder, AzureConfigKey, "AZURE_", limits, variables)
}
