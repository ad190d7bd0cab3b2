//! How the language model trains, validates, tests and writes.

use burn::tensor::{Device, Int, Tensor, TensorData};
use tenterhook::plan::DeclaredMetric;
use tenterhook::random::RandomStream;
use tenterhook::tensor::NoTensors;
use tenterhook::{BatchData, ModuleResult, Phase, TensorSource};
use tenterhook_burn::{BurnCx, BurnModule, Points, Step, TensorList};

use super::model::{Gpt, cross_entropy};

/// What the language model is given.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // nearly all are windows
pub enum TextBatch {
    /// Bytes to read, and those that follow them.
    Windows {
        /// The bytes to read.
        tokens: Tensor<2, Int>,
        /// The byte that follows each of them.
        targets: Tensor<2, Int>,
        /// Both as hooks see them: `tokens` and `targets`, as floats.
        shown: TensorList,
    },
    /// A beginning to go on from.
    Prompt(Prompt),
}

/// A text to be continued.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// Its beginning.
    pub text: String,
    /// By how many bytes.
    pub bytes: usize,
    /// How daring: 0 always takes the likeliest byte.
    pub temperature: f64,
    /// Only so many of the likeliest bytes are considered.
    pub top_k: Option<usize>,
    /// The seed of what is drawn.
    pub seed: u64,
}

impl TextBatch {
    /// Windows of equal length, each of bytes to read and one more.
    #[must_use]
    pub fn windows(windows: &[Vec<u8>], device: &Device) -> TextBatch {
        let (size, length) = (windows.len(), windows.first().map_or(1, Vec::len) - 1);
        let part = |skip: usize| {
            let bytes = windows.iter().flat_map(|window| window[skip..skip + length].iter());
            let bytes: Vec<i64> = bytes.map(|byte| i64::from(*byte)).collect();
            Tensor::from_data(TensorData::new(bytes, [size, length]), device)
        };
        let [tokens, targets]: [Tensor<2, Int>; 2] = [part(0), part(1)];
        let shown = TensorList::default()
            .with("tokens", tokens.clone().float())
            .with("targets", targets.clone().float());
        TextBatch::Windows { tokens, targets, shown }
    }
}

impl BatchData for TextBatch {
    fn size(&self) -> usize {
        match self {
            TextBatch::Windows { tokens, .. } => tokens.dims()[0],
            TextBatch::Prompt(_) => 1,
        }
    }

    fn tokens(&self) -> u64 {
        match self {
            TextBatch::Windows { tokens, .. } => tokens.dims().into_iter().product::<usize>() as u64,
            TextBatch::Prompt(_) => 0,
        }
    }

    fn tensors(&self) -> &dyn TensorSource {
        match self {
            TextBatch::Windows { shown, .. } => shown,
            TextBatch::Prompt(_) => &NoTensors,
        }
    }
}

impl Gpt {
    fn loss_of(
        &self,
        batch: &TextBatch,
        training: bool,
        cx: &mut BurnCx<'_, Gpt>,
    ) -> ModuleResult<Tensor<1>> {
        let TextBatch::Windows { tokens, targets, .. } = batch else {
            return Err("a prompt has no loss".into());
        };
        let lift =
            |tensor: &Tensor<2, Int>| if training { tensor.clone().autodiff() } else { tensor.clone() };
        let logits = self.forward_with(lift(tokens), cx);
        cx.output("logits", &logits);
        Ok(cross_entropy(logits, lift(targets)))
    }
}

/// Perplexity is a property of the whole evaluation: of its mean loss, not the mean of its batches'.
fn log_perplexity(of: &str, cx: &mut BurnCx<'_, Gpt>) {
    if let Some(loss) = cx.metrics().get(&format!("{of}/loss")) {
        cx.log(&format!("{of}/perplexity"), loss.exp());
    }
}

impl BurnModule for Gpt {
    type Batch = TextBatch;
    type Prediction = String;

    fn training_step(&mut self, batch: &TextBatch, cx: &mut BurnCx<'_, Self>) -> ModuleResult<Step> {
        Ok(self.loss_of(batch, true, cx)?.into())
    }

    fn validation_step(&self, batch: &TextBatch, cx: &mut BurnCx<'_, Self>) -> ModuleResult {
        let loss = self.loss_of(batch, false, cx)?.into_scalar();
        cx.log("val/loss", loss);
        Ok(())
    }

    fn test_step(&self, batch: &TextBatch, cx: &mut BurnCx<'_, Self>) -> ModuleResult {
        let loss = self.loss_of(batch, false, cx)?.into_scalar();
        cx.log("test/loss", loss);
        Ok(())
    }

    fn on_validation_epoch_end(&mut self, cx: &mut BurnCx<'_, Self>) -> ModuleResult {
        log_perplexity("val", cx);
        Ok(())
    }

    fn on_test_epoch_end(&mut self, cx: &mut BurnCx<'_, Self>) -> ModuleResult {
        log_perplexity("test", cx);
        Ok(())
    }

    fn predict_step(&self, batch: &TextBatch, cx: &mut BurnCx<'_, Self>) -> ModuleResult<String> {
        let TextBatch::Prompt(prompt) = batch else { return Err("there is no prompt to continue".into()) };
        let Prompt { text, bytes, temperature, top_k, seed } = prompt;
        let mut stream = RandomStream::new(*seed, "text", "generate");
        let draw = &mut || stream.uniform();
        let written = self.generate_with(text.as_bytes(), *bytes, *temperature, *top_k, draw, cx);
        Ok(text.clone() + &String::from_utf8_lossy(&written))
    }

    fn metrics(&self) -> Option<Vec<DeclaredMetric>> {
        let of = |phase, names: [&str; 2]| names.map(|name| DeclaredMetric::new(name, phase));
        let validated = of(Phase::Validate, ["val/loss", "val/perplexity"]);
        let tested = of(Phase::Test, ["test/loss", "test/perplexity"]);
        Some(validated.into_iter().chain(tested).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_see_what_is_read_and_what_follows() {
        let batch = TextBatch::windows(&[vec![1, 2, 3], vec![4, 5, 6]], &Device::flex());
        let shown = batch.tensors();
        assert_eq!(shown.count(), 2);
        assert_eq!((shown.name(0), shown.read(0)), ("tokens", vec![1.0, 2.0, 4.0, 5.0]));
        assert_eq!((shown.name(1), shown.read(1)), ("targets", vec![2.0, 3.0, 5.0, 6.0]));
        assert_eq!(shown.shape(0), [2, 2]);
    }
}
