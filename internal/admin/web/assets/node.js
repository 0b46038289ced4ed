export const title='node'; export async function show(main){ main.textContent='node'; }
