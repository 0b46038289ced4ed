export const title='key'; export async function show(main){ main.textContent='key'; }
