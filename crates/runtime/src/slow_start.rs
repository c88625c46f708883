//! Many calls of the same sort in growing batches: if the first fails, a thousand more would have failed too.

use std::future::Future;

use futures_util::future::join_all;

/// Calls `call` with 0, 1, ... `count - 1`: first one, then two, four, eight at once, and stops after the first batch in which
/// any failed. Says how many succeeded, and the first error.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use setpoint_runtime::slow_start::slow_start;
///
/// let (made, error) = slow_start(10, 1, |at| async move { if at < 5 { Ok(()) } else { Err("quota") } }).await;
/// assert_eq!((made, error), (5, Some("quota"))); // 0, then 1 and 2, then 3 to 6: 7, 8 and 9 are never tried
/// # });
/// ```
pub async fn slow_start<E, F>(count: usize, first_batch: usize, mut call: impl FnMut(usize) -> F) -> (usize, Option<E>)
where
    F: Future<Output = Result<(), E>>,
{
    let (mut succeeded, mut begun, mut batch) = (0, 0, first_batch.max(1));
    while begun < count {
        let end = count.min(begun + batch);
        let mut error = None;
        for answer in join_all((begun..end).map(&mut call)).await {
            match answer {
                Ok(()) => succeeded += 1,
                Err(found) => error = error.or(Some(found)),
            }
        }
        if error.is_some() {
            return (succeeded, error);
        }
        begun = end;
        batch = batch.saturating_mul(2);
    }
    (succeeded, None)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    async fn check(count: usize, fails_at: usize, expected_tried: usize, expected: (usize, Option<usize>)) {
        let tried = RefCell::new(0);
        let call = |at| {
            *tried.borrow_mut() += 1;
            async move { if at >= fails_at { Err(at) } else { Ok(()) } }
        };
        assert_eq!(slow_start(count, 1, call).await, expected);
        assert_eq!(*tried.borrow(), expected_tried);
    }

    #[tokio::test]
    async fn nothing_is_tried_after_a_batch_that_failed() {
        check(0, 0, 0, (0, None)).await;
        check(100, 100, 100, (100, None)).await;
        check(100, 0, 1, (0, Some(0))).await;
        check(100, 3, 7, (3, Some(3))).await;
        check(5, 4, 5, (4, Some(4))).await;
    }
}
