//! Which curves of a run are drawn, and which of them together.

use std::collections::BTreeMap;

use tenterhook::plan::nearest;
use tenterhook::run::reading::Curves;

use crate::curves::{Look, Series, chart};
use crate::error::CommandError;
use crate::table::plain;

/// So many charts are drawn when none is asked for.
const CHARTS: usize = 6;

/// The charts to draw, and what is left out.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Chosen<'a> {
    /// By chart: its title, and the names in it.
    charts: Vec<(&'a str, Vec<&'a str>)>,
    /// The titles of charts that would be too many.
    more: Vec<&'a str>,
}

impl<'a> Chosen<'a> {
    /// The names of all that is drawn.
    pub(super) fn names(&self) -> Vec<&'a str> {
        self.charts.iter().flat_map(|(_, names)| names.iter().copied()).collect()
    }
}

/// What training and validation call the same stands in one chart.
fn title(name: &str) -> &str {
    name.strip_prefix("train/").or_else(|| name.strip_prefix("val/")).unwrap_or(name)
}

/// A metric is asked for by its name, its chart, or its end.
fn fits(asked: &str, name: &str) -> bool {
    asked == name || asked == title(name) || name.rsplit('/').next() == Some(asked)
}

/// What is asked for; if nothing is, every curve of more than a point, the loss first, unless it gets too much.
pub(super) fn chosen<'a>(curves: &'a Curves, asked: &[String]) -> Result<Chosen<'a>, CommandError> {
    let mut charts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in curves.by_name.keys() {
        if asked.is_empty() || asked.iter().any(|asked| fits(asked, name)) {
            charts.entry(title(name)).or_default().push(name);
        }
    }
    if let Some(asked) = asked.iter().find(|asked| !charts.values().flatten().any(|name| fits(asked, name))) {
        return Err(unknown(curves, asked));
    }
    if !asked.is_empty() {
        return Ok(Chosen { charts: charts.into_iter().collect(), more: Vec::new() });
    }
    let drawable = |names: &[&str]| names.iter().any(|name| curves.by_name[*name].len() > 1);
    let mut charts: Vec<_> = charts.into_iter().filter(|(_, names)| drawable(names)).collect();
    let is_of_stage = |names: &[&str]| names.iter().any(|name| title(name) != *name);
    charts.sort_by_key(|(title, names)| (*title != "loss", !is_of_stage(names), title.matches('/').count()));
    let more = charts.split_off(charts.len().min(CHARTS));
    Ok(Chosen { charts, more: more.into_iter().map(|(title, _)| title).collect() })
}

fn unknown(curves: &Curves, asked: &str) -> CommandError {
    let unknown = CommandError::new(format_args!("there is no `{asked}`"));
    if curves.by_name.is_empty() {
        return unknown.fix("no metrics were logged");
    }
    let names = || curves.by_name.keys().map(String::as_str);
    match nearest(asked, names()) {
        Some(near) => unknown.fix(format_args!("did you mean `{near}`?")),
        None => unknown.fix(format_args!("there are: {}", names().collect::<Vec<_>>().join(", "))),
    }
}

pub(super) fn drawn(curves: &Curves, chosen: &Chosen<'_>, look: Look) -> String {
    let mut text = Vec::new();
    for (title, names) in &chosen.charts {
        let series = |name: &&str| {
            let points = curves.by_name[*name].iter().map(|point| (point.step, point.value));
            (plain(name), points.collect())
        };
        let owned: Vec<(String, Vec<_>)> = names.iter().map(series).collect();
        let series: Vec<_> =
            owned.iter().map(|(name, points)| Series { name, points: points.clone() }).collect();
        text.push(format!("\n{}\n{}", plain(title), chart(&series, look)));
    }
    if curves.by_name.is_empty() {
        text.push("\nno curves: nothing was logged".to_owned());
    } else if chosen.charts.is_empty() {
        text.push("\nno curves: no metric has more than one point; --metric draws single ones".to_owned());
    }
    if !chosen.more.is_empty() {
        text.push(format!(
            "\n{} more curves; draw them with --metric: {}",
            chosen.more.len(),
            plain(&chosen.more.join(", "))
        ));
    }
    text.join("\n")
}

#[cfg(test)]
mod tests {
    use tenterhook::run::reading::Point;

    use super::*;

    fn curves(names: &[(&str, u64)]) -> Curves {
        let points = |count| (0..count).map(|step| Point { step, epoch: 0, time: 0.0, value: 1.0 }).collect();
        let by_name = names.iter().map(|(name, count)| ((*name).to_owned(), points(*count)));
        Curves { by_name: by_name.collect(), unreadable: 0 }
    }

    fn asked(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn training_and_validation_share_a_chart_and_single_points_have_none() {
        let curves =
            curves(&[("lr", 9), ("test/loss", 1), ("train/accuracy", 9), ("train/loss", 9), ("val/loss", 1)]);
        let chosen = chosen(&curves, &[]).expect("nothing is unknown");
        let expected: [(&str, &[&str]); 3] =
            [("loss", &["train/loss", "val/loss"]), ("accuracy", &["train/accuracy"]), ("lr", &["lr"])];
        assert_eq!(chosen.charts, expected.map(|(title, names)| (title, names.to_vec())));
    }

    #[test]
    fn what_is_asked_for_is_drawn_and_a_wrong_name_gets_the_nearest() {
        let curves = curves(&[("test/loss", 1), ("train/loss", 9), ("val/loss", 1)]);
        let one = asked(&["test/loss"]);
        assert_eq!(chosen(&curves, &one).expect("it is there").names(), ["test/loss"]);
        let end = asked(&["loss"]);
        assert_eq!(chosen(&curves, &end).expect("they are there").names().len(), 3);
        let error =
            chosen(&curves, &asked(&["test/loss", "val/los"])).expect_err("it is unknown").to_string();
        assert!(error.contains("did you mean `val/loss`?"), "{error}");
        let error = chosen(&Curves::default(), &asked(&["x"])).expect_err("there is nothing").to_string();
        assert!(error.contains("no metrics were logged"), "{error}");
    }

    #[test]
    fn too_many_charts_are_named_instead() {
        let names: Vec<_> = (0..9).map(|number| format!("grad_norm/{number}")).collect();
        let mut all: Vec<_> = names.iter().map(|name| (name.as_str(), 2)).collect();
        all.push(("val/accuracy", 2));
        let curves = curves(&all);
        let chosen = chosen(&curves, &[]).expect("nothing is unknown");
        assert_eq!((chosen.charts.len(), chosen.more.len(), chosen.charts[0].0), (6, 4, "accuracy"));
    }
}
