//! Signatures of configurations: a run belongs to the user if its `run.json` holds a hash of its configuration with
//! the user's key.
//!
//! **Invariant.** The configuration in a run directory is used without `--trust` only if [`confirm`] accepts it
//! (SECURITY.md).

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use tenterhook_files::{create_private, open_regular, read_bounded, read_bounded_text};

use super::reading::{ReadError, read_record};

/// The largest configuration that is read.
const CONFIG: u64 = 16 << 20;
/// The length of a key in bytes.
const BYTES: usize = 32;
/// The most signatures that a run keeps.
const MAX_SIGNATURES: usize = 16;

/// The secret key that signs the configurations of a user's runs.
#[derive(Clone)]
pub struct UserKey([u8; BYTES]);

impl std::fmt::Debug for UserKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UserKey(***)")
    }
}

/// The key that signs the configuration of a run.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Signer {
    /// The key of [`UserKey::of_user`], loaded when a training run with a configuration begins, and not for a dry run or an
    /// evaluation.
    #[default]
    User,
    /// This key.
    Key(UserKey),
    /// No key: resuming the run may need `--trust`.
    None,
}

impl Signer {
    /// Loads the key of the user. After an error the run is not signed.
    pub(super) fn load_key(&mut self) -> Result<(), KeyError> {
        if let Signer::User = self {
            *self = Signer::None;
            *self = Signer::Key(UserKey::of_user()?);
        }
        Ok(())
    }

    /// The signature of a configuration, if a key is loaded.
    pub(super) fn signature(&self, config: &str) -> Option<String> {
        match self {
            Signer::Key(key) if !config.is_empty() => Some(key.sign(config.as_bytes())),
            _ => None,
        }
    }
}

/// Why the user's key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Neither `XDG_CONFIG_HOME` nor `HOME` names a directory.
    #[error("there is no home directory to keep a key in; set HOME or XDG_CONFIG_HOME")]
    NoHome,
    /// The key cannot be read or created.
    #[error("the key {} cannot be used: {source}", path.display())]
    Unusable {
        /// The key file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Other users may have read the key.
    #[error("the key {} is not a secret: {why}; remove it, and a new one is made", path.display())]
    NotSecret {
        /// The key file.
        path: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// The file does not hold a key.
    #[error("{} is not a key; remove it, and a new one is made", path.display())]
    Damaged {
        /// The key file.
        path: PathBuf,
    },
}

/// Why a configuration is not confirmed as the user's own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnershipError {
    /// The configuration has no signature.
    #[error("it is not signed")]
    Unsigned,
    /// The signature does not match the key and the text.
    #[error("another user or another machine made it, or it was changed since")]
    NotConfirmed,
    /// The key cannot be used.
    #[error("its signature cannot be checked: {0}")]
    NoKey(#[from] KeyError),
    /// The files of the run cannot be read.
    #[error("its signature cannot be read: {0}")]
    Unreadable(#[from] ReadError),
}

impl UserKey {
    /// The key of this user, in `$XDG_CONFIG_HOME/tenterhook/` or `~/.config/tenterhook/`. It is created on first
    /// use, readable only by this user.
    pub fn of_user() -> Result<UserKey, KeyError> {
        UserKey::at(&path_of_user()?)
    }

    fn at(path: &Path) -> Result<UserKey, KeyError> {
        if let Some(key) = UserKey::read(path)? {
            return Ok(key);
        }
        create(path).map_err(unusable(path))?;
        UserKey::read(path)?.ok_or_else(|| unusable(path)(ErrorKind::NotFound.into()))
    }

    /// Reads the key, if the file exists.
    fn read(path: &Path) -> Result<Option<UserKey>, KeyError> {
        let file = match open_regular(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(unusable(path))?,
        };
        let found = file.metadata().map_err(unusable(path))?;
        let not_secret = |why| KeyError::NotSecret { path: path.to_owned(), why };
        if found.uid() != rustix::process::geteuid().as_raw() {
            return Err(not_secret("it belongs to another user"));
        }
        if found.mode() & 0o077 != 0 {
            return Err(not_secret("other users have access to it"));
        }
        let text = read_bounded_text(path, 1024).map_err(unusable(path))?;
        let bytes = blake3::Hash::from_hex(text.trim()).map(|hash| *hash.as_bytes());
        bytes.map(|bytes| Some(UserKey(bytes))).map_err(|_| KeyError::Damaged { path: path.to_owned() })
    }

    /// The signature of a configuration.
    #[must_use]
    fn sign(&self, config: &[u8]) -> String {
        self.hash(config).to_hex().to_string()
    }

    fn hash(&self, config: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.0, config)
    }

    /// Whether one of these signatures is that of this configuration with this key. Comparisons take constant time.
    fn confirms(&self, config: &[u8], signatures: &[String]) -> bool {
        let hash = self.hash(config);
        signatures.iter().filter_map(|text| blake3::Hash::from_hex(text).ok()).any(|other| other == hash)
    }
}

/// Appends earlier signatures. They are kept because a process that is killed before it replaces the configuration
/// leaves the earlier one.
pub(super) fn add_signatures(signatures: &mut Vec<String>, earlier: Vec<String>) {
    for signature in earlier {
        if !signatures.contains(&signature) {
            signatures.push(signature);
        }
    }
    signatures.truncate(MAX_SIGNATURES);
}

/// Checks that a configuration in a run directory is signed with the user's key.
pub fn confirm(config: &Path) -> Result<(), OwnershipError> {
    confirm_with(config, || UserKey::read(&path_of_user()?))
}

fn confirm_with(
    config: &Path,
    key: impl FnOnce() -> Result<Option<UserKey>, KeyError>,
) -> Result<(), OwnershipError> {
    let text = read_bounded(config, CONFIG).map_err(ReadError::unreadable(config))?;
    let signatures = match read_record(&config.with_file_name("run.json")) {
        Err(ReadError::NotARun { .. }) => Vec::new(),
        read => read?.config_signatures,
    };
    if signatures.is_empty() {
        return Err(OwnershipError::Unsigned);
    }
    if key()?.is_some_and(|key| key.confirms(&text, &signatures)) {
        Ok(())
    } else {
        Err(OwnershipError::NotConfirmed)
    }
}

fn path_of_user() -> Result<PathBuf, KeyError> {
    path(std::env::var_os("XDG_CONFIG_HOME"), std::env::var_os("HOME"))
}

/// The path of the key. Relative variables are ignored, as they mean another file in every directory.
fn path(xdg: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, KeyError> {
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute(xdg).or_else(|| absolute(home).map(|home| home.join(".config")));
    Ok(config.ok_or(KeyError::NoHome)?.join("tenterhook").join("key"))
}

fn unusable(path: &Path) -> impl FnOnce(io::Error) -> KeyError {
    move |source| KeyError::Unusable { path: path.to_owned(), source }
}

/// Creates a key, unless another process does so at the same time.
fn create(path: &Path) -> io::Result<()> {
    let directory = path.parent().unwrap_or(path);
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut bytes = [0; BYTES];
    io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut bytes)?;
    create_private(path, |file| writeln!(file, "{}", blake3::Hash::from_bytes(bytes).to_hex()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_for_this_user_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = path(None, Some(home.path().into())).unwrap();
        assert_eq!(path, home.path().join(".config/tenterhook/key"));
        let keys: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| UserKey::at(&path).unwrap().0)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]), "all processes have the same");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
        assert_eq!(format!("{:?}", UserKey(keys[0])), "UserKey(***)");
    }

    #[test]
    fn a_key_that_others_can_read_or_that_is_invalid_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = path(Some(home.path().into()), None).unwrap();
        UserKey::at(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = UserKey::at(&path).unwrap_err().to_string();
        assert!(error.contains("is not a secret: other users have access to it; remove it"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "no key").unwrap();
        assert!(matches!(UserKey::at(&path), Err(KeyError::Damaged { .. })));
        assert!(matches!(super::path(Some("relative".into()), None), Err(KeyError::NoHome)));
        assert!(matches!(super::path(None, Some("".into())), Err(KeyError::NoHome)));
        let file = home.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(UserKey::at(&file.join("tenterhook/key")), Err(KeyError::Unusable { .. })));
    }

    #[test]
    fn a_configuration_is_own_only_as_it_was_signed_and_by_the_same_key() {
        let run = tempfile::tempdir().unwrap();
        let config = run.path().join("config.toml");
        fs::write(&config, "a = 1").unwrap();
        let (own, other) = (UserKey([1; BYTES]), UserKey([2; BYTES]));
        let confirmed = |key: &UserKey| confirm_with(&config, || Ok(Some(key.clone())));
        assert!(matches!(confirmed(&own), Err(OwnershipError::Unsigned)), "there is no run.json");
        let record = |signatures: &[String]| {
            let record = serde_json::json!({ "format": 1, "config_signatures": signatures });
            fs::write(run.path().join("run.json"), record.to_string()).unwrap();
        };
        record(&[]);
        assert!(matches!(confirmed(&own), Err(OwnershipError::Unsigned)));
        record(&["nonsense".into(), own.sign(b"a = 1"), own.sign(b"a = 0")]);
        assert!(confirmed(&own).is_ok());
        assert!(matches!(confirmed(&other), Err(OwnershipError::NotConfirmed)));
        fs::write(&config, "a = 2").unwrap();
        assert!(matches!(confirmed(&own), Err(OwnershipError::NotConfirmed)), "it was changed");
        fs::write(&config, "a = 0").unwrap();
        assert!(confirmed(&own).is_ok(), "an earlier one of the same user");
        fs::remove_file(run.path().join("run.json")).unwrap();
        fs::create_dir(run.path().join("run.json")).unwrap();
        assert!(matches!(confirmed(&own), Err(OwnershipError::Unreadable(_))));
    }

    #[test]
    fn the_newest_signatures_are_remembered_once_each() {
        let mut signatures = vec!["new".to_owned()];
        let earlier = (0..30).map(|number| format!("{}", number % 20)).chain(["new".to_owned()]).collect();
        add_signatures(&mut signatures, earlier);
        assert_eq!((signatures.len(), &*signatures[0], &*signatures[1]), (MAX_SIGNATURES, "new", "0"));
    }
}
