//! Facts about quantities, taken from how Kubernetes answers.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

#[test]
fn a_quantity_prints_in_its_shortest_exact_form() {
    for (text, printed) in [
        ("0", "0"),
        ("0Ki", "0"),
        ("-0", "0"),
        ("00", "0"),
        ("0.1", "100m"),
        ("1.5", "1500m"),
        ("1000", "1k"),
        ("1500m", "1500m"),
        ("2000m", "2"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1000Ki", "1000Ki"),
        ("0.0000000005Gi", "536870912n"),
        ("0.3Mi", "314572800m"),
        ("1.5e3", "1500"),
        ("1e3", "1e3"),
        ("1e4", "10e3"),
        ("1e100", "10e99"),
        ("1e-10", "1e-9"),
        ("-0.0000000001", "-1n"),
        ("1.0000000001", "1000000001n"),
        ("12345678901234567890123", "12345678901234567890123"),
        ("1Ei", "1Ei"),
        ("9Ei", "9223372036854775807"),
        ("10000Ei", "9223372036854775807"),
        ("-10000Ei", "-9223372036854775807"),
        ("1E", "1E"),
        (".", "0"),
        ("+", "0"),
        ("e3", "0"),
        (".5", "500m"),
    ] {
        assert_eq!(parse(text).to_string(), printed, "{text:?}");
    }
}

#[test]
fn some_texts_come_back_as_they_were_written() {
    for text in ["1.125", "+5", "005", "1E3", "1e+3", "1.", "1.125k", "+5Gi", "007Ki"] {
        assert_eq!(parse(text).to_string(), text);
    }
    assert_eq!(parse("+5Pi").to_string(), "5Pi");
    assert_eq!(parse("1.125"), parse("1125m"));
}

#[test]
fn a_number_too_large_for_a_suffix_is_printed_with_an_exponent() {
    assert_eq!(parse("1000E").to_string(), "1e21");
    assert_eq!(parse("1e21"), parse("1000E"));
}

#[test]
fn what_is_no_quantity_is_refused_in_the_words_of_kubernetes() {
    let format = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    let (numeric, suffix) = ("unable to parse numeric part of quantity", "unable to parse quantity's suffix");
    for (text, message) in [
        ("", format),
        (" 1", format),
        ("1 ", format),
        ("1.1.M", format),
        ("one", format),
        ("1x", format),
        ("1é", format),
        ("1e3.5", format),
        ("--1", suffix),
        ("1e", suffix),
        ("1i", suffix),
        ("1Em", suffix),
        ("1ki", suffix),
        ("1+3", suffix),
        ("1e99999999999", suffix),
        ("e-10", numeric),
        (&"9".repeat(40), numeric),
        (&"9".repeat(2000), numeric),
    ] {
        assert_eq!(Quantity::parse(text).map_err(|error| error.to_string()), Err(message.to_owned()), "{text:?}");
    }
}

#[test]
fn order_is_that_of_the_numbers() {
    let ascending =
        ["-1e100", "-1Ki", "-1", "-1n", "0", "1n", "1m", "999m", "1", "1.0000001", "1k", "1Ki", "1E", "1Ei", "1e100"];
    for (left_place, left) in ascending.iter().enumerate() {
        for (right_place, right) in ascending.iter().enumerate() {
            assert_eq!(parse(left).cmp(&parse(right)), left_place.cmp(&right_place), "{left} and {right}");
        }
    }
    assert_eq!(parse("1"), parse("1000m"));
    assert_eq!(parse("1Ki"), parse("1024"));
}

#[test]
fn whole_and_milli_values_round_away_from_zero() {
    for (text, value, milli) in [
        ("1", 1, 1000),
        ("1500m", 2, 1500),
        ("1n", 1, 1),
        ("-1500m", -2, -1500),
        ("-1n", -1, -1),
        ("0", 0, 0),
        ("1Gi", 1 << 30, 1000 << 30),
        ("1e100", i64::MAX, i64::MAX),
    ] {
        assert_eq!((parse(text).value(), parse(text).milli_value()), (value, milli), "{text:?}");
    }
    assert_eq!(parse("2000m").as_i64(), Some(2));
    assert_eq!(parse("2500m").as_i64(), None);
}

#[test]
fn sums_keep_the_format_of_the_first_that_is_not_zero() {
    let sum = |texts: &[&str]| {
        let mut total = Quantity::ZERO;
        texts.iter().for_each(|text| total.add(&parse(text)));
        total.to_string()
    };
    assert_eq!(sum(&["1Gi", "1Gi"]), "2Gi");
    assert_eq!(sum(&["100m", "1"]), "1100m");
    assert_eq!(sum(&["1Ki", "1k"]), "2024");
    assert_eq!(sum(&["1e100", "1"]), "10e99");
    let mut rest = parse("1Gi");
    rest.sub(&parse("512Mi"));
    assert_eq!(rest.to_string(), "512Mi");
    assert_eq!(parse("100m").checked_mul(15).unwrap().to_string(), "1500m");
}

#[test]
fn json_is_a_string_and_a_number_is_taken() {
    assert_eq!(serde_json::from_str::<Quantity>("\" 1.5Gi \"").unwrap(), parse("1536Mi"));
    assert_eq!(serde_json::from_str::<Quantity>("1.5").unwrap(), parse("1500m"));
    assert_eq!(serde_json::from_str::<Quantity>("null").unwrap(), Quantity::ZERO);
    assert!(serde_json::from_str::<Quantity>("true").is_err());
    assert_eq!(serde_json::to_string(&parse("1.5Gi")).unwrap(), "\"1536Mi\"");
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
        let _ = Quantity::parse(&text).map(|quantity| (quantity.to_string(), quantity.milli_value()));
    }

    #[test]
    fn printing_and_reading_give_the_same_amount(
        text in "[+-]?[0-9]{1,24}(\\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[0-9]|e-[0-9])?"
    ) {
        let quantity = parse(&text);
        let again = parse(&quantity.to_string());
        prop_assert_eq!(&again, &quantity);
        prop_assert_eq!(again.to_string(), quantity.to_string());
    }

    #[test]
    fn adding_and_taking_away_leaves_what_was(left in any::<i64>(), right in any::<i64>(), scale in 0..3usize) {
        let suffix = ["", "m", "Ki"][scale];
        let start = parse(&left.to_string());
        let other = parse(&format!("{right}{suffix}"));
        let mut quantity = start.clone();
        quantity.add(&other);
        quantity.sub(&other);
        prop_assert_eq!(quantity, start);
    }

    #[test]
    fn order_agrees_with_whole_numbers(left in any::<i64>(), right in any::<i64>()) {
        prop_assert_eq!(parse(&format!("{left}m")).cmp(&parse(&format!("{right}m"))), left.cmp(&right));
    }
}
