export const title='refusals'; export async function show(main){ main.textContent='refusals'; }
