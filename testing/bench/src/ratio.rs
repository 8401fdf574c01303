//! The ratio runner: A B A B …, so that a noisy machine disturbs both alike; medians are compared.

/// Runs two measurements in turn and gives the median of each.
pub(crate) fn in_turn(rounds: usize, mut a: impl FnMut() -> f64, mut b: impl FnMut() -> f64) -> (f64, f64) {
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        of_a.push(a());
        of_b.push(b());
    }
    (median(&mut of_a), median(&mut of_b))
}

/// The middle one.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
