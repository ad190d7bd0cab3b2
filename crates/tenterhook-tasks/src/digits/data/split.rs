//! The stratified split into training, validation and test.

use std::collections::BTreeMap;

use tenterhook::random::seed_at;

/// The fixed seed of the split: neither the seed of a run nor a result may influence the test set.
const SPLIT_SEED: u64 = 0x7465_6e74_6572;

/// Splits the samples of each class 60/20/20 with a `test` part and 80/20 without. Each part keeps the order of the samples.
pub(super) fn stratified(labels: &[u32], test: bool) -> Result<[Vec<usize>; 3], TooFew> {
    let mut by_class: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, label) in labels.iter().enumerate() {
        by_class.entry(*label).or_default().push(index);
    }
    let mut parts = [Vec::new(), Vec::new(), Vec::new()];
    for (class, members) in by_class {
        let [train, validate] = counts(class, members.len(), test)?;
        let mut drawn: Vec<(u64, usize)> = members
            .into_iter()
            .enumerate()
            .map(|(place, index)| (seed_at(SPLIT_SEED, u64::from(class), place as u64), index))
            .collect();
        drawn.sort_unstable();
        for (place, (_, index)) in drawn.into_iter().enumerate() {
            let part = usize::from(place >= train) + usize::from(place >= train + validate);
            parts[part].push(index);
        }
    }
    for part in &mut parts {
        part.sort_unstable();
    }
    Ok(parts)
}

/// A class has too few samples to be in every part.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooFew {
    pub(super) class: u32,
    pub(super) samples: usize,
    pub(super) needed: usize,
}

/// The number of training and validation samples of a class.
fn counts(class: u32, samples: usize, test: bool) -> Result<[usize; 2], TooFew> {
    let others = 1 + usize::from(test);
    if samples <= others {
        return Err(TooFew { class, samples, needed: others + 1 });
    }
    let share = if test { 6 } else { 8 };
    let train = ((samples * share + 5) / 10).clamp(1, samples - others);
    Ok([train, (samples - train).div_ceil(others)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(class: usize) -> u32 {
        u32::try_from(class).unwrap()
    }

    proptest! {
        #[test]
        fn every_sample_is_in_one_part_and_every_class_in_all(
            sizes in proptest::collection::vec(3usize..60, 1..6), test: bool,
        ) {
            let mut labels = Vec::new();
            for round in 0..60 {
                labels.extend((0..sizes.len()).filter(|class| round < sizes[*class]).map(number));
            }
            let parts = stratified(&labels, test).expect("there are enough samples");
            let mut all = parts.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..labels.len()).collect::<Vec<_>>());
            prop_assert_eq!(parts[2].is_empty(), !test);
            for (class, size) in sizes.iter().enumerate() {
                let shares = if test { [0.6, 0.2, 0.2] } else { [0.8, 0.2, 0.0] };
                for (part, share) in parts.iter().zip(shares) {
                    let count = part.iter().filter(|index| labels[**index] == number(class)).count();
                    prop_assert!((count as f64 - share * *size as f64).abs() <= 1.0, "{} of {}", count, size);
                    prop_assert!(count > 0 || share == 0.0);
                }
            }
        }
    }

    #[test]
    fn the_split_never_changes() {
        let labels: Vec<u32> = (0..20).map(|index| index % 2).collect();
        let [train, validate, test] = stratified(&labels, true).unwrap();
        assert_eq!((train.len(), &*validate, &*test), (12, &[12, 14, 17, 19][..], &[1, 3, 16, 18][..]));
    }

    #[test]
    fn a_class_that_cannot_be_in_every_part_is_named() {
        let too_few = |test| stratified(&[0, 0, 0, 4, 4], test).unwrap_err();
        assert_eq!(too_few(true), TooFew { class: 4, samples: 2, needed: 3 });
        assert_eq!(stratified(&[0, 0, 0, 4], false), Err(TooFew { class: 4, samples: 1, needed: 2 }));
    }
}
