//! Encodes the Protocol Buffers messages of TensorBoard. Field numbers are those of `event.proto`, `summary.proto` and
//! `tensor.proto`.

use std::collections::BTreeMap;

use tenterhook_core::metrics::Histogram;

/// The file version in the first event.
const VERSION: &str = "brain.Event:2";

/// The tensor data type of texts and images.
const DT_STRING: u64 = 7;

/// Data classes, which determine how TensorBoard samples values.
const CLASS_TENSOR: u64 = 2;
const CLASS_BLOBS: u64 = 3;

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    fn key(&mut self, field: u64, kind: u64) {
        self.varint(field << 3 | kind);
    }

    fn number(mut self, field: u64, number: u64) -> Message {
        self.key(field, 0);
        self.varint(number);
        self
    }

    fn double(mut self, field: u64, number: f64) -> Message {
        self.key(field, 1);
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn float(mut self, field: u64, number: f32) -> Message {
        self.key(field, 5);
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Message {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn doubles(self, field: u64, numbers: impl Iterator<Item = f64>) -> Message {
        self.bytes(field, &numbers.flat_map(f64::to_le_bytes).collect::<Vec<_>>())
    }

    fn message(self, field: u64, message: &Message) -> Message {
        self.bytes(field, &message.0)
    }
}

/// The first event of a file.
pub(super) fn version(wall_time: f64) -> Vec<u8> {
    Message::default().double(1, wall_time).bytes(3, VERSION.as_bytes()).0
}

/// The size of the time field at the start of an event.
pub(super) const TIME_SIZE: usize = 9;

/// The time of an event in seconds since 1970: its first field.
pub(super) fn wall_time(event: &[u8]) -> Option<f64> {
    let (key, rest) = event.split_first()?;
    let time = rest.first_chunk::<8>()?;
    (*key == (1 << 3 | 1)).then_some(f64::from_le_bytes(*time))
}

/// The event of a line of `metrics.jsonl` and `histograms.jsonl`.
pub(super) fn logged(
    wall_time: f64,
    step: u64,
    metrics: &BTreeMap<String, f64>,
    histograms: &BTreeMap<String, Histogram>,
) -> Vec<u8> {
    let mut summary = Summary::new(wall_time, step);
    for (name, value) in metrics {
        summary.scalar(name, *value);
    }
    for (name, histogram) in histograms {
        summary.histogram(name, histogram);
    }
    summary.into_event()
}

/// An event with values of one time.
pub(super) struct Summary {
    wall_time: f64,
    step: u64,
    values: Message,
}

impl Summary {
    pub(super) fn new(wall_time: f64, step: u64) -> Summary {
        Summary { wall_time, step, values: Message::default() }
    }

    fn value(&mut self, tag: &str, rest: impl FnOnce(Message) -> Message) {
        let value = rest(Message::default().bytes(1, tag.as_bytes()));
        self.values = std::mem::take(&mut self.values).message(1, &value);
    }

    /// A 32-bit scalar, the form that every reader supports; TensorBoard stores no higher precision.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn scalar(&mut self, tag: &str, value: f64) {
        // `metrics.jsonl` does not keep the sign and payload of a NaN. All NaNs are written alike, so that an
        // event restored from it equals the original.
        let value = if value.is_nan() { f32::NAN } else { value as f32 };
        self.value(tag, |message| message.float(2, value));
    }

    pub(super) fn histogram(&mut self, tag: &str, histogram: &Histogram) {
        let Histogram { edges, counts, .. } = histogram;
        let (Some(low), Some(high)) = (edges.first(), edges.last()) else {
            // No value was finite.
            return;
        };
        // [`Histogram`] stores no sum and no sum of squares. They are approximated from the bins; TensorBoard does
        // not display them.
        let bins =
            || edges.windows(2).zip(counts).map(|(bin, count)| (f64::midpoint(bin[0], bin[1]), *count));
        let sum: f64 = bins().map(|(middle, count)| middle * count as f64).sum();
        let squares: f64 = bins().map(|(middle, count)| middle * middle * count as f64).sum();
        let histogram = Message::default()
            .double(1, *low)
            .double(2, *high)
            .double(3, counts.iter().sum::<u64>() as f64)
            .double(4, sum)
            .double(5, squares)
            .doubles(6, edges.iter().skip(1).copied())
            .doubles(7, counts.iter().map(|count| *count as f64));
        self.value(tag, |message| message.message(5, &histogram));
    }

    /// Markdown.
    pub(super) fn text(&mut self, tag: &str, text: &str) {
        let tensor = strings(&[text.as_bytes()]);
        self.value(tag, |message| message.message(8, &tensor).message(9, &plugin("text", CLASS_TENSOR)));
    }

    /// PNG files of one size under one tag.
    pub(super) fn images(&mut self, tag: &str, [width, height]: [u32; 2], files: &[Vec<u8>]) {
        let size = [width.to_string().into_bytes(), height.to_string().into_bytes()];
        let texts: Vec<_> = size.iter().chain(files).map(Vec::as_slice).collect();
        let tensor = strings(&texts);
        self.value(tag, |message| message.message(8, &tensor).message(9, &plugin("images", CLASS_BLOBS)));
    }

    pub(super) fn into_event(self) -> Vec<u8> {
        Message::default().double(1, self.wall_time).number(2, self.step).message(5, &self.values).0
    }
}

/// Texts as a 1-D tensor.
fn strings(texts: &[&[u8]]) -> Message {
    let shape = Message::default().message(2, &Message::default().number(1, texts.len() as u64));
    let tensor = Message::default().number(1, DT_STRING).message(2, &shape);
    texts.iter().fold(tensor, |tensor, text| tensor.bytes(8, text))
}

/// The metadata that selects a TensorBoard plugin.
fn plugin(name: &str, class: u64) -> Message {
    Message::default().message(1, &Message::default().bytes(1, name.as_bytes())).number(4, class)
}
