// What the bundler copies beside the script: its address, relative to the script's.
declare module "world-atlas/*.json" {
  const address: string;
  export default address;
}
