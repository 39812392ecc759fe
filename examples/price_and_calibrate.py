"""What a noise schedule costs, the constant noise that costs the same, and the curve that meets a budget."""

import dpviz

EPOCHS, BATCH_SIZE, EXAMPLES, DELTA = 20, 600, 60_000, 1e-5
sample_rate = BATCH_SIZE / EXAMPLES

schedule = dpviz.Schedule.of("linear", start=5.0, end=1.0)
sigmas = schedule.sigmas(EPOCHS)
phases = dpviz.epoch_phases(sigmas, sample_rate)

cost = dpviz.epsilon(phases, DELTA)
lower, upper = dpviz.epsilon_number(cost.lower, up=False), dpviz.epsilon_number(cost.upper)  # rounded outwards
print(f"linear noise from 5 to 1 over {EPOCHS} epochs: epsilon between {lower} and {upper}")

half = dpviz.epsilon_number(dpviz.epsilon_path(phases, DELTA)[EPOCHS // 2 - 1].upper)
print(f"half way it has cost at most {half}: most of the price is paid where the noise is small")

constant = dpviz.matching_constant(sigmas, sample_rate, DELTA)
print(f"constant noise {constant.sigmas[0]:.4f} costs the same")

budget = 2.0
fitted = dpviz.calibrate(sigmas, sample_rate, budget, DELTA)
achieved = dpviz.epsilon_number(fitted.epsilon.upper)
print(f"times {fitted.factor:.4f} the curve costs {achieved}, within the budget of {budget}")
