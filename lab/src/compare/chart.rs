//! Pictures as SVG: grouped bars and lines, nothing else. Colours keep apart for colour-blind readers and on dark pages.

use std::fmt::Write;

const COLOURS: [&str; 11] = [
    "#d55e00", "#999999", "#56b4e9", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#f0e442",
    "#000000", "#8b4513", "#6a3d9a",
];
const WIDTH: f64 = 910.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 84.0;
/// The longest name of an engine.
const RIGHT: f64 = 250.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;

/// A named row of values, one for each place on the x axis; `None` where there is none.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) values: Vec<Option<f64>>,
}

pub(super) struct Chart<'a> {
    pub(super) title: &'a str,
    pub(super) x: &'a str,
    pub(super) y: &'a str,
    pub(super) places: Vec<String>,
    pub(super) series: Vec<Series>,
    /// Powers of ten on the y axis, for values that differ by more than what linear bars can show.
    pub(super) is_logarithmic: bool,
}

struct Axis {
    low: f64,
    high: f64,
    is_logarithmic: bool,
}

impl Axis {
    fn of(chart: &Chart<'_>) -> Axis {
        let values = chart.series.iter().flat_map(|series| &series.values);
        let positive: Vec<f64> = values
            .flatten()
            .copied()
            .filter(|value| *value > 0.0)
            .collect();
        let high = positive.iter().copied().fold(0.0, f64::max).max(1e-9);
        if chart.is_logarithmic {
            let low = positive.iter().copied().fold(high, f64::min);
            return Axis {
                low: 10_f64.powf(low.log10().floor()),
                high: 10_f64.powf(high.log10().ceil()),
                is_logarithmic: true,
            };
        }
        let step = 10_f64.powf(high.log10().floor());
        Axis {
            low: 0.0,
            high: (high / step * 2.0).ceil() / 2.0 * step,
            is_logarithmic: false,
        }
    }

    fn y(&self, value: f64) -> f64 {
        let part = if self.is_logarithmic {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10().max(1e-9)
        } else {
            value / self.high
        };
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - part)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.is_logarithmic {
            let (low, high) = (
                self.low.log10().round() as i32,
                self.high.log10().round() as i32,
            );
            return (low..=high).map(|power| 10_f64.powi(power)).collect();
        }
        (0..=5)
            .map(|step| self.high * f64::from(step) / 5.0)
            .collect()
    }
}

/// Bars side by side at each place.
pub(super) fn bars(chart: &Chart<'_>) -> String {
    let axis = Axis::of(chart);
    let mut out = frame(chart, &axis);
    let place = (WIDTH - LEFT - RIGHT) / chart.places.len().max(1) as f64;
    let bar = place * 0.8 / chart.series.len().max(1) as f64;
    for (row, series) in chart.series.iter().enumerate() {
        for (column, value) in series.values.iter().enumerate() {
            let Some(value) = value else { continue };
            let x = LEFT + place * (column as f64 + 0.1) + bar * row as f64;
            let y = axis.y(*value);
            let height = HEIGHT - BOTTOM - y;
            _ = writeln!(
                out,
                "<rect x='{x:.1}' y='{y:.1}' width='{:.1}' height='{height:.1}' fill='{}'><title>{}, {}: {}</title></rect>",
                bar * 0.92,
                colour(row),
                escape(&series.name),
                escape(&chart.places[column]),
                number(*value)
            );
        }
    }
    out + "</svg>\n"
}

/// Lines from place to place.
pub(super) fn lines(chart: &Chart<'_>) -> String {
    let axis = Axis::of(chart);
    let mut out = frame(chart, &axis);
    let place = (WIDTH - LEFT - RIGHT) / chart.places.len().max(1) as f64;
    for (row, series) in chart.series.iter().enumerate() {
        let points: Vec<String> = series
            .values
            .iter()
            .enumerate()
            .filter_map(|(column, value)| {
                let x = LEFT + place * (column as f64 + 0.5);
                value.map(|value| format!("{x:.1},{:.1}", axis.y(value)))
            })
            .collect();
        _ = writeln!(
            out,
            "<polyline points='{}' fill='none' stroke='{1}' stroke-width='2.5' marker-mid='none'/>",
            points.join(" "),
            colour(row)
        );
        for point in points {
            if let Some((x, y)) = point.split_once(',') {
                _ = writeln!(
                    out,
                    "<circle cx='{x}' cy='{y}' r='3.5' fill='{}'/>",
                    colour(row)
                );
            }
        }
    }
    out + "</svg>\n"
}

fn frame(chart: &Chart<'_>, axis: &Axis) -> String {
    let mut out = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' font-family='sans-serif' font-size='12'>\n\
         <rect width='{WIDTH}' height='{HEIGHT}' fill='#ffffff'/>\n\
         <text x='{LEFT}' y='22' font-size='15' font-weight='bold'>{}</text>\n",
        escape(chart.title)
    );
    for tick in axis.ticks() {
        let y = axis.y(tick);
        _ = writeln!(
            out,
            "<line x1='{LEFT}' x2='{}' y1='{y:.1}' y2='{y:.1}' stroke='#dddddd'/>\
             <text x='{}' y='{:.1}' text-anchor='end'>{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            number(tick)
        );
    }
    let place = (WIDTH - LEFT - RIGHT) / chart.places.len().max(1) as f64;
    for (column, name) in chart.places.iter().enumerate() {
        _ = writeln!(
            out,
            "<text x='{:.1}' y='{}' text-anchor='middle'>{}</text>",
            LEFT + place * (column as f64 + 0.5),
            HEIGHT - BOTTOM + 18.0,
            escape(name)
        );
    }
    _ = writeln!(
        out,
        "<text x='{:.1}' y='{}' text-anchor='middle'>{}</text>\
         <text transform='translate(16 {:.1}) rotate(-90)' text-anchor='middle'>{}</text>",
        LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
        HEIGHT - 12.0,
        escape(chart.x),
        TOP + (HEIGHT - TOP - BOTTOM) / 2.0,
        escape(chart.y)
    );
    for (row, series) in chart.series.iter().enumerate() {
        let y = TOP + 10.0 + 20.0 * row as f64;
        _ = writeln!(
            out,
            "<rect x='{}' y='{:.1}' width='12' height='12' fill='{}'/><text x='{}' y='{:.1}'>{}</text>",
            WIDTH - RIGHT + 14.0,
            y - 10.0,
            colour(row),
            WIDTH - RIGHT + 32.0,
            y,
            escape(&series.name)
        );
    }
    out
}

fn colour(row: usize) -> &'static str {
    COLOURS[row % COLOURS.len()]
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('\'', "&#39;")
}

/// A number as short as it is still right to three digits.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if size >= 1000.0 {
        let digits = format!("{value:.0}");
        let (sign, digits) = digits
            .strip_prefix('-')
            .map_or(("", digits.as_str()), |rest| ("-", rest));
        let mut grouped = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index) % 3 == 0 {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        format!("{sign}{grouped}")
    } else if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_short() {
        for (value, text) in [
            (0.0, "0"),
            (1_234_567.4, "1,234,567"),
            (-1000.0, "-1,000"),
            (999.6, "1000"),
            (12.34, "12.3"),
            (0.05, "0.050"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_chart_is_one_svg_with_every_bar() {
        let chart = Chart {
            title: "a<b",
            x: "x",
            y: "y",
            places: vec!["1".into(), "2".into()],
            series: vec![Series {
                name: "s".into(),
                values: vec![Some(3.0), None],
            }],
            is_logarithmic: false,
        };
        let svg = bars(&chart);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a&lt;b"));
        assert_eq!(svg.matches("<title>").count(), 1);
    }
}
