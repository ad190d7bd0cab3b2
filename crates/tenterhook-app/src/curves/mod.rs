//! Charts as text: a line of braille dots for the first metric, and one mark per point for the others.
//!
//! Curves have different symbols, so colours are not needed to distinguish them.

use crate::format::number;

/// The points of a metric: step and value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<(u64, f64)>,
}

/// Size and symbols of a chart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChartStyle {
    /// In characters, including the labels.
    pub(crate) width: usize,
    /// In lines, without the axis.
    pub(crate) height: usize,
    pub(crate) ascii: bool,
    pub(crate) colour: bool,
}

/// The symbols of a chart.
struct Symbols {
    line: char,
    marks: [char; 3],
    tick: char,
    corner: char,
    floor: char,
}

const ASCII: Symbols = Symbols { line: '*', marks: ['o', '+', 'x'], tick: '|', corner: '+', floor: '-' };
const UNICODE: Symbols =
    Symbols { line: '⠒', marks: ['×', '+', '○'], tick: '┤', corner: '└', floor: '─' };
pub(crate) const COLOURS: [&str; 5] = ["\x1b[36m", "\x1b[33m", "\x1b[35m", "\x1b[32m", NO_COLOUR];
const NO_COLOUR: &str = "\x1b[0m";
/// Marks a value that is not finite on the axis.
const NOT_FINITE: char = '!';
/// The dots of a braille character, by column and row.
const DOTS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

impl ChartStyle {
    fn symbols(self) -> &'static Symbols {
        if self.ascii { &ASCII } else { &UNICODE }
    }

    /// Columns and rows of dots in one character.
    fn dots(self) -> (usize, usize) {
        if self.ascii { (1, 1) } else { (2, 4) }
    }

    fn symbol(self, series: usize) -> char {
        match series {
            0 => self.symbols().line,
            _ => self.symbols().marks[(series - 1) % 3],
        }
    }

    fn coloured(self, series: usize, text: &str) -> String {
        if self.colour { format!("{}{text}{NO_COLOUR}", COLOURS[series % 4]) } else { text.to_owned() }
    }
}

/// A chart of metrics over the same steps, with a line of statistics for each.
pub(crate) fn chart(series: &[Series<'_>], style: ChartStyle) -> String {
    let mut lines = Range::of(series).map_or_else(Vec::new, |range| plot(series, &range, style));
    let widest = series.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
    for (index, Series { name, points }) in series.iter().enumerate() {
        let symbol = style.coloured(index, &style.symbol(index).to_string());
        lines.push(format!("  {symbol} {name:<widest$}  {}", statistics(points)));
    }
    lines.join("\n")
}

/// The range of steps and values.
#[derive(Debug, PartialEq)]
struct Range {
    steps: (u64, u64),
    low: f64,
    high: f64,
}

impl Range {
    /// `None` if no value is finite.
    fn of(series: &[Series<'_>]) -> Option<Range> {
        let points = || series.iter().flat_map(|series| series.points.iter().copied());
        let values = || points().map(|(_, value)| value).filter(|value| value.is_finite());
        let (mut low, mut high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
        // A constant is drawn in the middle.
        #[allow(clippy::float_cmp)]
        if low == high {
            let room = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
            (low, high) = ((low - room).max(f64::MIN), (high + room).min(f64::MAX));
        }
        let steps = || points().map(|(step, _)| step);
        Some(Range { steps: (steps().min()?, steps().max()?), low, high })
    }

    fn across(&self, step: u64, dots: usize) -> usize {
        let (first, last) = self.steps;
        if first == last {
            (dots - 1) / 2
        } else {
            dot_at((step - first) as f64 / (last - first) as f64, dots)
        }
    }

    fn down(&self, value: f64, dots: usize) -> usize {
        // The values are halved, because the range may exceed the largest number.
        dot_at((self.high / 2.0 - value / 2.0) / (self.high / 2.0 - self.low / 2.0), dots)
    }

    fn at_row(&self, row: usize, rows: usize) -> f64 {
        let fraction = row as f64 / (rows - 1).max(1) as f64;
        self.high * (1.0 - fraction) + self.low * fraction
    }
}

/// The dot at a fraction of the range.
fn dot_at(fraction: f64, dots: usize) -> usize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and the number of dots
    let dot = (fraction.clamp(0.0, 1.0) * (dots - 1) as f64).round() as usize;
    dot
}

fn plot(series: &[Series<'_>], range: &Range, style: ChartStyle) -> Vec<String> {
    let symbols = style.symbols();
    let rows = style.height.max(2);
    let labelled = [0, (rows - 1) / 2, rows - 1];
    let label =
        |row: usize| if labelled.contains(&row) { number(range.at_row(row, rows)) } else { String::new() };
    let margin = labelled.map(|row| label(row).len()).into_iter().max().unwrap_or(0);
    let columns = style.width.saturating_sub(margin + 2).max(8);
    let grid = Grid::draw(series, range, (columns, rows), style);
    let mut lines: Vec<_> =
        (0..rows).map(|row| format!("{:>margin$} {}{}", label(row), symbols.tick, grid.row(row))).collect();
    let mut floor = vec![symbols.floor; columns];
    for (step, value) in series.iter().flat_map(|series| &series.points) {
        if !value.is_finite() {
            floor[range.across(*step, columns)] = NOT_FINITE;
        }
    }
    lines.push(format!("{:>margin$} {}{}", "", symbols.corner, floor.into_iter().collect::<String>()));
    lines.push(format!("{:>margin$}  {}", "", steps(range, columns)));
    lines
}

/// The labels below the axis.
fn steps(range: &Range, columns: usize) -> String {
    let (first, last) = (range.steps.0.to_string(), format!("step {}", range.steps.1));
    if range.steps.0 == range.steps.1 {
        return format!("{last:^columns$}").trim_end().to_owned();
    }
    let middle = (range.steps.0 + (range.steps.1 - range.steps.0) / 2).to_string();
    let room = columns.saturating_sub(first.len() + last.len());
    if room < middle.len() + 4 || range.steps.1 - range.steps.0 < 2 {
        return format!("{first}{:>1$}", last, columns.saturating_sub(first.len()).max(last.len() + 1));
    }
    // The middle of the axis, not of the space between the labels.
    let before = (columns / 2).saturating_sub(first.len() + middle.len() / 2).max(1);
    let after = room.saturating_sub(before + middle.len());
    format!("{first}{:before$}{middle}{:after$}{last}", "", "")
}

/// The characters of a plot.
struct Grid {
    columns: usize,
    style: ChartStyle,
    /// For each character, the dots of the line.
    dots: Vec<u8>,
    /// For each character, the series that has a mark there.
    marks: Vec<Option<usize>>,
}

impl Grid {
    fn draw(
        series: &[Series<'_>],
        range: &Range,
        (columns, rows): (usize, usize),
        style: ChartStyle,
    ) -> Grid {
        let cells = columns * rows;
        let mut grid = Grid { columns, style, dots: vec![0; cells], marks: vec![None; cells] };
        let (fine_across, fine_down) = style.dots();
        let (across, down) = (columns * fine_across, rows * fine_down);
        for (index, series) in series.iter().enumerate() {
            // The line is interrupted where a value is not finite.
            for part in series.points.split(|(_, value)| !value.is_finite()) {
                let at =
                    part.iter().map(|(step, value)| (range.across(*step, across), range.down(*value, down)));
                let at: Vec<_> = at.collect();
                if index == 0 && at.len() > 1 {
                    at.windows(2).for_each(|pair| grid.line(pair[0], pair[1]));
                } else {
                    // A single point is drawn as a mark, because a dot is hard to see.
                    for (x, y) in at {
                        grid.marks[y / fine_down * columns + x / fine_across] = Some(index);
                    }
                }
            }
        }
        grid
    }

    /// Draws a line from one dot to another, in equal steps along the longer axis.
    fn line(&mut self, from: (usize, usize), to: (usize, usize)) {
        let length = from.0.abs_diff(to.0).max(from.1.abs_diff(to.1));
        let interpolate = |from: usize, to: usize, at: usize| {
            let offset = (from.abs_diff(to) * at + length / 2).checked_div(length).unwrap_or(0);
            if from <= to { from + offset } else { from - offset }
        };
        for at in 0..=length {
            self.dot(interpolate(from.0, to.0, at), interpolate(from.1, to.1, at));
        }
    }

    fn dot(&mut self, x: usize, y: usize) {
        let (across, down) = self.style.dots();
        self.dots[y / down * self.columns + x / across] |= DOTS[x % across][y % down];
    }

    fn row(&self, row: usize) -> String {
        let cells = row * self.columns..(row + 1) * self.columns;
        let symbol = |cell: usize| match (self.marks[cell], self.dots[cell]) {
            (Some(series), _) => (Some(series), self.style.symbol(series)),
            (None, 0) => (None, ' '),
            (None, _) if self.style.ascii => (Some(0), ASCII.line),
            (None, dots) => (Some(0), char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' ')),
        };
        let symbols: Vec<_> = cells.map(symbol).collect();
        let last = symbols.iter().rposition(|(series, _)| series.is_some()).map_or(0, |last| last + 1);
        let groups = symbols[..last].chunk_by(|a, b| a.0 == b.0);
        let text = groups.map(|group| {
            let text: String = group.iter().map(|(_, symbol)| *symbol).collect();
            group[0].0.map_or_else(|| text.clone(), |series| self.style.coloured(series, &text))
        });
        text.collect()
    }
}

/// Minimum, maximum and last value of a curve.
fn statistics(points: &[(u64, f64)]) -> String {
    let finite = || points.iter().filter(|(_, value)| value.is_finite());
    let low = finite().min_by(|a, b| a.1.total_cmp(&b.1));
    // `rev` selects the first of equal values.
    let high = finite().rev().max_by(|a, b| a.1.total_cmp(&b.1));
    let text = |what: &str, (step, value): &(u64, f64)| format!("{what} {} at step {step}", number(*value));
    let mut words = Vec::new();
    match (low, high, points.last()) {
        (.., Some(last)) if points.len() == 1 => words.push(text("only", last)),
        (low, high, last) => {
            words.extend(low.map(|low| text("min", low)));
            words.extend(high.map(|high| text("max", high)));
            words.extend(last.map(|last| text("last", last)));
        }
    }
    let other = points.len() - finite().count();
    if let Some((step, _)) = points.iter().find(|(_, value)| !value.is_finite()) {
        words.push(format!("{other} not finite, first at step {step}"));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests;
