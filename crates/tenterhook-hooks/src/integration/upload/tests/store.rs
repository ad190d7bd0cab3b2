//! An in-memory store that logs its operations and calls a function before each, which may fail or change files.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

type Before = Box<dyn FnMut(usize, &str) -> Result<()> + Send>;

#[derive(Clone)]
pub(super) struct Watched {
    inner: Arc<InMemory>,
    log: Arc<Mutex<Vec<String>>>,
    /// Called before each operation with its number and description.
    before: Arc<Mutex<Before>>,
}

impl Watched {
    pub(super) fn new(before: impl FnMut(usize, &str) -> Result<()> + Send + 'static) -> Watched {
        let before: Before = Box::new(before);
        Watched { inner: Arc::default(), log: Arc::default(), before: Arc::new(Mutex::new(before)) }
    }

    /// The same content, without interference.
    pub(super) fn undisturbed(&self) -> Watched {
        let before: Before = Box::new(|_, _| Ok(()));
        Watched { inner: Arc::clone(&self.inner), log: Arc::default(), before: Arc::new(Mutex::new(before)) }
    }

    /// The same content, with this function before each operation.
    pub(super) fn with(&self, before: impl FnMut(usize, &str) -> Result<()> + Send + 'static) -> Watched {
        let before: Before = Box::new(before);
        Watched { before: Arc::new(Mutex::new(before)), ..self.undisturbed() }
    }

    /// The operations, in order.
    pub(super) fn log(&self) -> Vec<String> {
        self.log.lock().expect("nobody panics").clone()
    }

    /// All objects by key.
    pub(super) async fn content(&self) -> BTreeMap<String, Vec<u8>> {
        let mut content = BTreeMap::new();
        let mut list = self.inner.list(None);
        while let Some(object) = list.next().await {
            let key = object.expect("it is listed").location;
            let bytes = self.inner.get(&key).await.expect("it is there").bytes().await.expect("it is read");
            content.insert(key.to_string(), bytes.to_vec());
        }
        content
    }

    fn note(&self, what: &str, key: &Key) -> Result<()> {
        let what = format!("{what} {key}");
        let number = {
            let mut log = self.log.lock().expect("nobody panics");
            log.push(what.clone());
            log.len() - 1
        };
        (self.before.lock().expect("nobody panics"))(number, &what)
    }
}

/// An unspecific error.
pub(super) fn broken() -> object_store::Error {
    object_store::Error::Generic { store: "test", source: "broken".into() }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

#[async_trait]
impl ObjectStore for Watched {
    async fn put_opts(&self, key: &Key, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.note("put", key)?;
        self.inner.put_opts(key, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        key: &Key,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.note("begin", key)?;
        let inner = self.inner.put_multipart_opts(key, options).await?;
        Ok(Box::new(Parts { inner, key: key.clone(), store: self.clone() }))
    }

    async fn get_opts(&self, key: &Key, options: GetOptions) -> Result<GetResult> {
        self.note("get", key)?;
        self.inner.get_opts(key, options).await
    }

    fn delete_stream(&self, keys: BoxStream<'static, Result<Key>>) -> BoxStream<'static, Result<Key>> {
        let store = self.clone();
        let noted = keys.map(move |key| key.and_then(|key| store.note("delete", &key).map(|()| key)));
        self.inner.delete_stream(noted.boxed())
    }

    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Key>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Key, to: &Key, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// A multipart upload.
#[derive(Debug)]
struct Parts {
    inner: Box<dyn MultipartUpload>,
    key: Key,
    store: Watched,
}

#[async_trait]
impl MultipartUpload for Parts {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        match self.store.note(&format!("part of {}", part.content_length()), &self.key) {
            Ok(()) => self.inner.put_part(part),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.store.note("complete", &self.key)?;
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.store.note("abort", &self.key)?;
        self.inner.abort().await
    }
}
