//! Numbers as Go prints them.

use serde_json::Number;

/// Whole numbers in full; others in the shortest form, with an exponent from a million on and below 0.0001.
pub(super) fn print(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => print_float(float),
        _ => number.to_string(),
    }
}

fn print_float(float: f64) -> String {
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if (-4..6).contains(&exponent) => format!("{float}"),
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        Err(_) => scientific,
    }
}
