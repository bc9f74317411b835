// buyer.ts VOUCHER buys one unit at $SECKILL as the user of $TOKEN: prints where to pay, later the code, or why not.
declare const process: { env: Record<string, string>; argv: string[]; exitCode: number }; // or install @types/node

const voucher = process.argv[2];

/** What is read of answers. code: of a problem, or what a paid order shows. status: a problem has its number. */
interface Answer {
  id?: string;
  code?: string;
  status?: string | number;
  reason?: string;
  order_id?: string;
  payment_url?: string;
  items?: Answer[];
}

/** Repeats until it is decided: the repeated call finds the order, or the payment, of the one before. */
async function call(method: string, path: string): Promise<Answer> {
  for (let attempt = 0; attempt < 10; attempt++) { // over half a minute or longer
    let pause = Math.min(0.1 * 2 ** attempt, 10); // seconds
    try {
      const response = await fetch(`${process.env.SECKILL}/api/v1${path}`, {
        method,
        headers: { Authorization: `Bearer ${process.env.TOKEN}` },
        signal: AbortSignal.timeout(15_000), // the longest answer is that of ?wait=10s
      });
      if (response.status !== 429 && response.status < 500) {
        return (await response.json()) as Answer;
      }
      pause = Number(response.headers.get("Retry-After")) || pause;
      await response.body?.cancel();
    } catch {
      // The answer is lost, and the order may be there.
    }
    // Not sooner than asked for, and not with all others.
    await new Promise((resume) => setTimeout(resume, 1000 * pause * (1 + Math.random() / 2)));
  }
  return { reason: "no answer; start again later, and it is still one unit" };
}

let order = await call("POST", `/vouchers/${voucher}/seckill`);
let id = order.id ?? order.order_id; // of ALREADY_ORDERED, good news: an earlier attempt got it
if (order.code === "ENDED" || order.code === "PAUSED") { // since then; what was got before is kept, the newest first
  id = (await call("GET", `/orders?voucher_id=${voucher}`)).items?.[0]?.id;
}
for (let open = id !== undefined; open; open = order.status === "processing") {
  order = await call("GET", `/orders/${id}?wait=10s`);
}
if (order.status === "unpaid") {
  order = await call("POST", `/orders/${id}/pay`);
}
console.log(order.payment_url ?? order.reason ?? order.code ?? order.status);
process.exitCode = order.payment_url || order.status === "paid" ? 0 : 1;
