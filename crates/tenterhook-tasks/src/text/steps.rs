//! The steps of the language model: training, validation, test and generation.

use burn::tensor::{Device, Int, Tensor, TensorData};
use tenterhook::plan::DeclaredMetric;
use tenterhook::random::RandomStream;
use tenterhook::tensor::NoTensors;
use tenterhook::{BatchData, ModuleResult, Phase, TensorSource};
use tenterhook_burn::{BurnCx, BurnModule, HookPoints, Step, TensorList};

use super::model::{Gpt, Sampling, cross_entropy};

/// A batch of the language model.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // nearly all are windows
pub enum TextBatch {
    /// Windows of the text, for training and evaluation.
    Windows {
        /// The input bytes.
        tokens: Tensor<2, Int>,
        /// The byte after each of the input bytes.
        targets: Tensor<2, Int>,
        /// `tokens` and `targets` as hooks see them: as floats.
        shown: TensorList,
    },
    /// A prompt to continue, for predictions.
    Prompt(Prompt),
}

/// A prompt to continue.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// The start of the text.
    pub text: String,
    /// The sampling options.
    pub sampling: Sampling,
    /// The seed of the sampling.
    pub seed: u64,
}

impl TextBatch {
    /// Makes a batch of windows of equal length, one byte longer than the input.
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
    fn loss_of_batch(
        &self,
        batch: &TextBatch,
        training: bool,
        cx: &mut BurnCx<'_, Gpt>,
    ) -> ModuleResult<Tensor<1>> {
        let TextBatch::Windows { tokens, targets, .. } = batch else {
            return Err("a prompt has no loss".into());
        };
        let (mut tokens, mut targets) = (tokens.clone(), targets.clone());
        if training {
            (tokens, targets) = (tokens.autodiff(), targets.autodiff());
        }
        let logits = self.forward_with(tokens, cx);
        cx.output("logits", &logits);
        Ok(cross_entropy(logits, targets))
    }
}

/// Logs the perplexity of an evaluation's mean loss, which differs from the mean perplexity of its batches.
fn log_perplexity(stage: &str, cx: &mut BurnCx<'_, Gpt>) {
    if let Some(loss) = cx.metrics().get(&format!("{stage}/loss")) {
        cx.log(&format!("{stage}/perplexity"), loss.exp());
    }
}

impl BurnModule for Gpt {
    type Batch = TextBatch;
    type Prediction = String;

    fn training_step(&mut self, batch: &TextBatch, cx: &mut BurnCx<'_, Self>) -> ModuleResult<Step> {
        Ok(self.loss_of_batch(batch, true, cx)?.into())
    }

    fn validation_step(&self, batch: &TextBatch, cx: &mut BurnCx<'_, Self>) -> ModuleResult {
        let loss = self.loss_of_batch(batch, false, cx)?.into_scalar();
        cx.log("val/loss", loss);
        Ok(())
    }

    fn test_step(&self, batch: &TextBatch, cx: &mut BurnCx<'_, Self>) -> ModuleResult {
        let loss = self.loss_of_batch(batch, false, cx)?.into_scalar();
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
        let Prompt { text, sampling, seed } = prompt;
        let mut stream = RandomStream::new(*seed, "text", "generate");
        let generated = self.generate(text.as_bytes(), sampling, &mut || stream.uniform(), cx);
        Ok(text.clone() + &String::from_utf8_lossy(&generated))
    }

    fn metrics(&self) -> Option<Vec<DeclaredMetric>> {
        Some(vec![
            DeclaredMetric::new("val/loss", Phase::Validate),
            DeclaredMetric::new("val/perplexity", Phase::Validate),
            DeclaredMetric::new("test/loss", Phase::Test),
            DeclaredMetric::new("test/perplexity", Phase::Test),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_see_the_tokens_and_the_targets() {
        let batch = TextBatch::windows(&[vec![1, 2, 3], vec![4, 5, 6]], &Device::flex());
        let shown = batch.tensors();
        assert_eq!(shown.count(), 2);
        assert_eq!((shown.name(0), shown.read(0)), ("tokens", vec![1.0, 2.0, 4.0, 5.0]));
        assert_eq!((shown.name(1), shown.read(1)), ("targets", vec![2.0, 3.0, 5.0, 6.0]));
        assert_eq!(shown.shape(0), [2, 2]);
    }
}
