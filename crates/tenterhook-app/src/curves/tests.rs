use super::*;

const SMALL: ChartStyle = ChartStyle { width: 26, height: 5, ascii: true, colour: false };

fn series<'a>(name: &'a str, points: &[(u64, f64)]) -> Series<'a> {
    Series { name, points: points.to_vec() }
}

/// Checks that the chart equals this picture, line by line.
#[track_caller]
fn shows(series: &[Series<'_>], look: ChartStyle, picture: &[&str]) {
    let drawn = chart(series, look);
    assert_eq!(drawn.lines().collect::<Vec<_>>(), picture, "\n{drawn}");
}

#[test]
fn two_metrics_share_a_chart_and_differ_in_their_symbols() {
    let train = series("train/x", &[(0, 0.0), (4, 4.0), (8, 0.0)]);
    let both = [train, series("val/x", &[(4, 2.0), (8, 1.0)])];
    let figures = [
        "train/x  min 0.0000 at step 0, max 4.0000 at step 4, last 0.0000 at step 8",
        "val/x    min 1.0000 at step 8, max 2.0000 at step 4, last 1.0000 at step 8",
    ];
    shows(
        &both,
        SMALL,
        &[
            "4.0000 |        **",
            "       |      **  **",
            "2.0000 |    **   o  **",
            "       |  **          ** o",
            "0.0000 |**              **",
            "       +------------------",
            "        0        4  step 8",
            &format!("  * {}", figures[0]),
            &format!("  o {}", figures[1]),
        ],
    );
    shows(
        &both,
        ChartStyle { ascii: false, ..SMALL },
        &[
            "4.0000 ┤       ⢀⠔⠑⢄",
            "       ┤     ⢀⠔⠁   ⠣⡀",
            "2.0000 ┤    ⡰⠁   ×  ⠈⠢⡀",
            "       ┤  ⡠⠊          ⠈⢢ ×",
            "0.0000 ┤⡠⠊              ⠑⢄",
            "       └──────────────────",
            "        0        4  step 8",
            &format!("  ⠒ {}", figures[0]),
            &format!("  × {}", figures[1]),
        ],
    );
}

#[test]
fn non_finite_values_interrupt_the_line_and_are_marked_and_counted() {
    let inf = f64::INFINITY;
    let points = [(0, 0.0), (4, 2.0), (8, f64::NAN), (12, 4.0), (16, -inf), (20, 4.0), (24, 0.0)];
    shows(
        &[series("x", &points)],
        ChartStyle { width: 33, ..SMALL },
        &[
            "4.0000 |            *       *",
            "       |                     *",
            "2.0000 |   **                 *",
            "       | **                    *",
            "0.0000 |*                       *",
            "       +--------!-------!--------",
            "        0          12     step 24",
            "  * x  min 0.0000 at step 0, max 4.0000 at step 12, last 0.0000 at step 24, 2 not finite, first at step 8",
        ],
    );
    let nothing = chart(&[series("x", &[(3, f64::NAN)])], SMALL);
    assert_eq!(nothing, "  * x  only NaN at step 3, 1 not finite, first at step 3");
}

#[test]
fn a_single_point_and_a_flat_line_stand_in_the_middle() {
    shows(
        &[series("x", &[(7, 0.5)])],
        ChartStyle { ascii: false, ..SMALL },
        &[
            "0.5500 ┤",
            "       ┤",
            "0.5000 ┤        ⠒",
            "       ┤",
            "0.4500 ┤",
            "       └──────────────────",
            "              step 7",
            "  ⠒ x  only 0.5000 at step 7",
        ],
    );
    let flat = chart(&[series("x", &[(0, 0.0), (9, 0.0)])], SMALL);
    assert!(flat.contains("0.0000 |*****************\n"), "\n{flat}");
}

#[test]
fn no_numbers_and_no_size_are_too_large_or_too_small() {
    let points = [(0, f64::MAX), (u64::MAX, f64::MIN), (5, 1e-300)];
    for (width, height) in [(0, 0), (1, 1), (300, 50)] {
        for ascii in [true, false] {
            let drawn = chart(
                &[series("x", &points), series("y", &points)],
                ChartStyle { width, height, ascii, colour: false },
            );
            assert!(drawn.lines().count() >= 6 && !drawn.contains("inf"), "{drawn}");
        }
    }
}

#[test]
fn colours_change_no_symbol() {
    let both = [series("train/x", &[(0, 0.0), (8, 4.0)]), series("val/x", &[(4, 2.0)])];
    let coloured = chart(&both, ChartStyle { colour: true, ..SMALL });
    assert!(coloured.contains(COLOURS[0]) && coloured.contains(COLOURS[1]));
    let plain = COLOURS.iter().fold(coloured.replace(NO_COLOUR, ""), |text, colour| text.replace(colour, ""));
    assert_eq!(plain, chart(&both, SMALL));
}
