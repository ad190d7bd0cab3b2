//! Selects the curves of a run to draw, and groups them into charts.

use std::collections::BTreeMap;

use tenterhook::plan::nearest;
use tenterhook::run::reading::Curves;

use crate::curves::{ChartStyle, Series, chart};
use crate::error::CommandError;
use crate::format::one_line;

/// Maximum number of charts, unless metrics are requested.
const MAX_CHARTS: usize = 6;

/// The charts to draw, and those left out.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Selection<'a> {
    /// The title of each chart, and its metrics.
    charts: Vec<(&'a str, Vec<&'a str>)>,
    /// The titles of the charts above [`MAX_CHARTS`].
    more: Vec<&'a str>,
}

impl<'a> Selection<'a> {
    /// The metrics of all charts.
    pub(super) fn names(&self) -> Vec<&'a str> {
        self.charts.iter().flat_map(|(_, names)| names.iter().copied()).collect()
    }
}

/// The title of a metric's chart. Training and validation metrics of the same name share one.
fn title(name: &str) -> &str {
    name.strip_prefix("train/").or_else(|| name.strip_prefix("val/")).unwrap_or(name)
}

/// Whether a request matches this metric by its name, its chart, or its last part.
fn matches(request: &str, name: &str) -> bool {
    request == name || request == title(name) || name.rsplit('/').next() == Some(request)
}

/// The requested metrics; without a request, all curves with more than one point, up to [`MAX_CHARTS`], loss first.
pub(super) fn select<'a>(curves: &'a Curves, requests: &[String]) -> Result<Selection<'a>, CommandError> {
    let mut charts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in curves.by_name.keys() {
        if requests.is_empty() || requests.iter().any(|request| matches(request, name)) {
            charts.entry(title(name)).or_default().push(name);
        }
    }
    let is_unknown = |request: &&String| !charts.values().flatten().any(|name| matches(request, name));
    if let Some(request) = requests.iter().find(is_unknown) {
        return Err(unknown(curves, request));
    }
    if !requests.is_empty() {
        return Ok(Selection { charts: charts.into_iter().collect(), more: Vec::new() });
    }
    let drawable = |names: &[&str]| names.iter().any(|name| curves.by_name[*name].len() > 1);
    let mut charts: Vec<_> = charts.into_iter().filter(|(_, names)| drawable(names)).collect();
    let is_of_stage = |names: &[&str]| names.iter().any(|name| title(name) != *name);
    charts.sort_by_key(|(title, names)| (*title != "loss", !is_of_stage(names), title.matches('/').count()));
    let more = charts.split_off(charts.len().min(MAX_CHARTS));
    Ok(Selection { charts, more: more.into_iter().map(|(title, _)| title).collect() })
}

fn unknown(curves: &Curves, request: &str) -> CommandError {
    let unknown = CommandError::new(format_args!("there is no `{request}`"));
    if curves.by_name.is_empty() {
        return unknown.fix("no metrics were logged");
    }
    let names = || curves.by_name.keys().map(String::as_str);
    match nearest(request, names()) {
        Some(near) => unknown.fix(format_args!("did you mean `{near}`?")),
        None => unknown.fix(format_args!("there are: {}", names().collect::<Vec<_>>().join(", "))),
    }
}

pub(super) fn draw(curves: &Curves, selection: &Selection<'_>, style: ChartStyle) -> String {
    let mut text = Vec::new();
    for (title, names) in &selection.charts {
        let series = |name: &&str| {
            let points = curves.by_name[*name].iter().map(|point| (point.step, point.value));
            (one_line(name), points.collect())
        };
        let owned: Vec<(String, Vec<_>)> = names.iter().map(series).collect();
        let series: Vec<_> =
            owned.iter().map(|(name, points)| Series { name, points: points.clone() }).collect();
        text.push(format!("\n{}\n{}", one_line(title), chart(&series, style)));
    }
    if curves.by_name.is_empty() {
        text.push("\nno curves: no metrics were logged".to_owned());
    } else if selection.charts.is_empty() {
        text.push("\nno curves: no metric has more than one point; --metric draws single points".to_owned());
    }
    if !selection.more.is_empty() {
        text.push(format!(
            "\n{} more curves; draw them with --metric: {}",
            selection.more.len(),
            one_line(&selection.more.join(", "))
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

    fn requests(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn training_and_validation_share_a_chart_and_single_points_have_none() {
        let curves =
            curves(&[("lr", 9), ("test/loss", 1), ("train/accuracy", 9), ("train/loss", 9), ("val/loss", 1)]);
        let selection = select(&curves, &[]).expect("nothing is unknown");
        let expected: [(&str, &[&str]); 3] =
            [("loss", &["train/loss", "val/loss"]), ("accuracy", &["train/accuracy"]), ("lr", &["lr"])];
        assert_eq!(selection.charts, expected.map(|(title, names)| (title, names.to_vec())));
    }

    #[test]
    fn requested_metrics_are_drawn_and_an_unknown_name_gets_a_suggestion() {
        let curves = curves(&[("test/loss", 1), ("train/loss", 9), ("val/loss", 1)]);
        let one = requests(&["test/loss"]);
        assert_eq!(select(&curves, &one).expect("it is there").names(), ["test/loss"]);
        let end = requests(&["loss"]);
        assert_eq!(select(&curves, &end).expect("they are there").names().len(), 3);
        let error =
            select(&curves, &requests(&["test/loss", "val/los"])).expect_err("it is unknown").to_string();
        assert!(error.contains("did you mean `val/loss`?"), "{error}");
        let error = select(&Curves::default(), &requests(&["x"])).expect_err("there is nothing").to_string();
        assert!(error.contains("no metrics were logged"), "{error}");
    }

    #[test]
    fn charts_above_the_maximum_are_only_named() {
        let names: Vec<_> = (0..9).map(|number| format!("grad_norm/{number}")).collect();
        let mut all: Vec<_> = names.iter().map(|name| (name.as_str(), 2)).collect();
        all.push(("val/accuracy", 2));
        let curves = curves(&all);
        let selection = select(&curves, &[]).expect("nothing is unknown");
        assert_eq!((selection.charts.len(), selection.more.len(), selection.charts[0].0), (6, 4, "accuracy"));
    }
}
