// Small sums over one sigma per epoch, and over timings.

const same = (one, other) => one.length === other.length && one.every((sigma, epoch) => sigma === other[epoch]);

function remember(timings, milliseconds) {
  timings.push(milliseconds);
  if (timings.length > KEPT_TIMINGS) timings.shift();
}

/** Each epoch moves towards its neighbours, in ratios; on long schedules more often, so that it shows. */
function smoothed(sigmas) {
  const mean = sigmas.every((sigma) => sigma > 0)
    ? (a, b, c) => Math.exp((Math.log(a) + 2 * Math.log(b) + Math.log(c)) / 4)
    : (a, b, c) => (a + 2 * b + c) / 4;
  const last = sigmas.length - 1;
  let now = Array.from(sigmas);
  for (let pass = 0; pass < Math.ceil(2 * (0.015 * sigmas.length) ** 2); pass++) {
    now = now.map((sigma, epoch) => mean(now[Math.max(0, epoch - 1)], sigma, now[Math.min(last, epoch + 1)]));
  }
  return now.map(fourDigits);
}
