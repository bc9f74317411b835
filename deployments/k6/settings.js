// The variables of a run. None has a default here: see ./run.

export function text(name) {
  if (!__ENV[name]) throw new Error(`${name} is missing: see deployments/k6/run`);
  return __ENV[name];
}

export function number(name) {
  const value = Number(text(name));
  if (!Number.isInteger(value) || value <= 0) throw new Error(`${name}=${__ENV[name]} is not a positive whole number`);
  return value;
}

export function choice(name, values) {
  const value = text(name);
  if (!values.includes(value)) throw new Error(`${name}=${value} is none of ${values.join(', ')}`);
  return value;
}

// list is empty without the variable.
export function list(name) {
  return (__ENV[name] || '').split(',').map((item) => item.trim().replace(/\/+$/, '')).filter(Boolean);
}
